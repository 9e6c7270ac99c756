"""Runs plans: links objects, binds arguments, launches; knows no IR but the plan."""
