"""A worker that nobody forks: `python -m kernel_harness.alone DESCRIPTOR`, for tools that start what they watch."""

from __future__ import annotations

import socket
import sys

from kernel_harness import worker
from kernel_harness.channel import Channel

if __name__ == "__main__":
    sys.exit(worker.main(Channel(socket.socket(fileno=int(sys.argv[1])))))
