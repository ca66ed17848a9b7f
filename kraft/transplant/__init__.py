"""Replacing the controllers of a live cluster: Apache Kafka's by kraft's, and back.

``steps`` has the plan, what to type in which order; ``rules`` says what stands against the plan or
against the next step. Both are pure functions of the facts that ``kraft.preflight`` gathers, and
use its findings. Called by ``kraft transplant``.
"""
