"""Launches that run together: those of a range as one launch with synchronisation inside, and
independent others at the same time."""
