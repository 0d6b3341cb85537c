"""The command `serve` with the arguments of this program, whose device workers are simulated (`simulated_worker`)."""

from __future__ import annotations

import sys
from pathlib import Path

from kernel_harness.cli import main
from kernel_harness.service import limits
from kernel_harness.suite import device_worker

if __name__ == "__main__":
    device_worker.PROGRAM = (str(Path(__file__).with_name("simulated_worker.py")),)
    limits.LimitedConnection.LONGEST_HEADER_S = 0.5
    sys.exit(main(["serve", "--device", "cpu", *sys.argv[1:]]))
