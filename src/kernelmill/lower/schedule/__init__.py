"""How kernels are cut: size classes, teams of threads, search by measurement."""
