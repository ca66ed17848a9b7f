"""Decisions about dynamic configurations and client quotas."""
