"""Runs a worker as a program of its own, without a fork server, so that compute-sanitizer can start it.

Command: `python -m kernel_harness.diagnostics.sanitizer.alone DESCRIPTOR`. DESCRIPTOR is the number of a file
descriptor that the process inherits: the worker's end of its socket connection to the judge.
"""

from __future__ import annotations

import socket
import sys

from kernel_harness.ipc.channel import Channel
from kernel_harness.worker import worker

if __name__ == "__main__":
    sys.exit(worker.main(Channel(socket.socket(fileno=int(sys.argv[1])))))
