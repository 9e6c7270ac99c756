"""Memory of calls and results, and the sizes that it is allocated for."""
