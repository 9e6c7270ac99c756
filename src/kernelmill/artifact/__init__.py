"""Programs at rest: what a trace depended on, and how to run it again without tracing."""
