"""Checks of `kernelmill doctor`: a module for each subject, with functions that make sections."""
