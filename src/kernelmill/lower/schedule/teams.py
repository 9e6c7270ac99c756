"""The numbers of threads by which a division into tasks is judged."""

THREADS = (1, 2, 4, 8, 16)
"""Teams of these sizes, for that of a call is not known beforehand."""
