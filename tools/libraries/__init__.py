"""Libraries of models, compiled as they are: `python -m tools.libraries` writes docs/libraries.md.

It runs in the environment of the extra `libraries`, which `make libraries` makes.
"""
