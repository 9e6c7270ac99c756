"""The contraction template: products as one register-tiled kernel."""
