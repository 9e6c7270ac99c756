"""Mathematical functions on vectors of f32 and f64."""
