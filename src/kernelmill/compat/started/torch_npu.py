"""Found by processes that multiprocessing starts: they inherit `sys.path`, not the modules."""

from kernelmill.compat.install import install

install()
