"""Choice of a gear's program for a call, and padding to its sizes."""
