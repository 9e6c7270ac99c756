"""What fusion groups become: a folder for each kind of kernel."""
