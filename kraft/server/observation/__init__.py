"""Observe a running node over HTTP: ``/metrics``, ``/healthz`` and ``/readyz``."""
