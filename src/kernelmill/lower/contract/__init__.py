"""The contraction template: matmul, linear and convolution as one register-tiled kernel."""
