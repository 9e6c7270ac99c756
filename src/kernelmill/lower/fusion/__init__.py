"""What is computed together in one kernel, and what that costs."""
