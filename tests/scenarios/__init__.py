"""Scenarios of the quorum as text scripts; `script` defines their language."""
