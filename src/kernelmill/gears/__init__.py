"""Gears as pure arithmetic: declarations, their combination, and the gear of a size."""
