"""Emitters that templates share: register tiles, panels, transposing, task numbers."""
