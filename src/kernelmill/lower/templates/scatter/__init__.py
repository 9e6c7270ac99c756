"""Writes to computed places of a buffer."""
