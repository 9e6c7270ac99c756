"""Proof that a program over padded inputs gives the same results as without padding."""
