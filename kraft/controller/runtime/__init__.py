"""Run operations: event queue, transactions, periodic tasks, activation, each API's operation."""
