"""Kernel templates: a folder for each kind of kernel."""
