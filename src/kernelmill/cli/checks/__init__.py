"""What `kernelmill doctor` looks at: a module a subject, each with functions that make sections."""
