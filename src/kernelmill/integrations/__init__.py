"""What is made for one library each; import the module of that library."""
