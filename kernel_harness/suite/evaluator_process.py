"""The program of an evaluator process: `python -m kernel_harness.suite.evaluator_process SOCKET DEVICE FOLDER`.

The arguments are the descriptor of the socket to the driver, the name of the device, and the folder for the temporary
files of the evaluator. The standard input has the start parameters as JSON (`evaluator.parameters`).
This module does not import torch before the fork server is started, so both processes import it at the same time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernel_harness.sandbox.fork_server_process import ForkServerProcess


def main() -> int:
    """Runs the evaluator: starts its fork server, and then judges the candidates that the driver sends.

    Returns the exit code: 0 after the driver's message Finish, 1 after an interrupt or a lost connection, and that of
    EnvironmentLacking if this machine cannot judge candidates.
    """
    with ForkServerProcess(parent=Path(sys.argv[3])) as process:
        from kernel_harness.suite import evaluator

        return evaluator.main(process)


if __name__ == "__main__":
    sys.exit(main())
