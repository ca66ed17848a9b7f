"""The APIs of a broker's listener, one module a subject."""
