"""Random models that read all kinds of state, which is edited between their calls."""
