"""The command: `python harness.py --problem matmul_tt`. Everything it does is in kernel_harness."""

# PYTHON_ARGCOMPLETE_OK: a shell may ask this file how a word goes on.
import sys

from kernel_harness.cli import main

if __name__ == "__main__":
    sys.exit(main())
