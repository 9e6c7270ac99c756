"""The code of single elements: views as index arithmetic, pointwise operators, loops."""
