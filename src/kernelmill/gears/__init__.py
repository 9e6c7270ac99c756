"""Gears as pure arithmetic: what a declaration means, how several combine, which one a size has."""
