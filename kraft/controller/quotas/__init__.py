"""Quotas of requests to the controller: by user and client id."""
