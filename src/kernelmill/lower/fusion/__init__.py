"""Fusion: the choice of nodes computed together in one kernel, by cost."""
