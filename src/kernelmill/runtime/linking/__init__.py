"""Objects to code in this process's memory."""
