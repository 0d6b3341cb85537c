"""The command in a checkout: `python harness.py --problem matmul_tt`. An installation has `kernel-harness`."""

# PYTHON_ARGCOMPLETE_OK: this marker tells argcomplete that a shell may complete the arguments of this command.
import sys

from kernel_harness.cli import main

if __name__ == "__main__":
    sys.exit(main())
