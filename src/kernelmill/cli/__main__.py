"""`python -m kernelmill.cli`, for when the package is not installed."""

import sys

from kernelmill.cli.main import main

sys.exit(main())
