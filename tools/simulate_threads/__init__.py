"""How a model would scale on many cores: `python -m tools.simulate_threads`."""
