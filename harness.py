"""The command: `python harness.py --problem matmul_tt`. Everything it does is in kernel_harness."""

import sys

from kernel_harness.cli import main

if __name__ == "__main__":
    sys.exit(main())
