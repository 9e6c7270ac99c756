"""Tensor-level IR: types, operators, builder, printer, parser, verifier, interpreter."""
