"""Schedules of kernels: size classes, teams of threads, search by measurement."""
