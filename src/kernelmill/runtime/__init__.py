"""Execution of plans: objects linked, arguments bound, kernels launched."""
