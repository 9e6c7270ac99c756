"""Recurrent layers: a kernel for all steps of time."""
