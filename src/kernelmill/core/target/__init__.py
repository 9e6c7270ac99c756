"""Processors: instruction sets, what work costs on them, and which of them a process may use."""
