"""Choice of a gear's program at a call, and padding to its sizes."""
