"""The program of a device worker: `python -m kernel_harness.suite.judging_process CONNECTION DEVICE FOLDER`.

The arguments are the descriptor of the connection to the driver, the name of the device, and the folder for temporary
files. This module does not import torch before the fork server is started, so both import it at the same time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernel_harness.workers.fork_server_process import ForkServerProcess


def main() -> int:
    """Starts a fork server, judges the driver's tasks, and returns the exit code (`judging.main`)."""
    with ForkServerProcess(parent=Path(sys.argv[3])) as process:
        from kernel_harness.suite import judging

        return judging.main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), process)


if __name__ == "__main__":
    sys.exit(main())
