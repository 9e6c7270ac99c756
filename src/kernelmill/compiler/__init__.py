"""Composition of the stages: graph in, running program and report out."""
