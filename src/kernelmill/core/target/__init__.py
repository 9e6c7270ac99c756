"""Processors: instruction sets, costs of work on them, and those that a process may use."""
