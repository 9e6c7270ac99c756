"""Linking of objects into executable memory of this process."""
