"""The command as a module: `python -m kernel_harness --problem matmul_tt`."""

import sys

from kernel_harness.cli import main

if __name__ == "__main__":
    sys.exit(main())
