"""`python -m kernelmill`: the same as the `kernelmill` command."""

import sys

from kernelmill.cli.main import main

sys.exit(main())
