"""Calls of a loaded plan: their steps, their variants, and the state that all calls share."""
