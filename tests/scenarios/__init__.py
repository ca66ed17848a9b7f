"""Scenarios of the quorum, as text that a person can read and review; `script` has the language."""
