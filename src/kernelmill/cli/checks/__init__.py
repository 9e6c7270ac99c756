"""Checks of `kernelmill doctor`: a module a subject, each with functions that make sections."""
