"""Saved programs: what a trace depended on, and how to run the program again without tracing."""
