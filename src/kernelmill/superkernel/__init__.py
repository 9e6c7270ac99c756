"""Launches that run together: those of a range as one launch, with the synchronisation they need;
others beside each other."""
