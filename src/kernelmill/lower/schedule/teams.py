"""How many threads a division into tasks is judged by."""

THREADS = (1, 2, 4, 8, 16)
"""Teams of these sizes, for that of a call is not known beforehand."""
