"""Numba kernels that judge very many what-if outages; only the lab and Spark import them."""
