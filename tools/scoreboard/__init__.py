"""Models of PyTorch's dashboard, and ours, by all contestants: docs/scoreboard.md."""
