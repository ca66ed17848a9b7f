"""The APIs of a broker's listener, one module for each or for a few that belong together."""
