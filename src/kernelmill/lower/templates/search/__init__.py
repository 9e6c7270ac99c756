"""The search template: positions among ascending numbers."""
