"""The ways of a call, and what all calls of a loaded plan share."""
