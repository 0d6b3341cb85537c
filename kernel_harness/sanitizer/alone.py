"""A worker that nobody forks, for tools that start what they watch: `-m kernel_harness.sanitizer.alone DESCRIPTOR`."""

from __future__ import annotations

import socket
import sys

from kernel_harness import worker
from kernel_harness.channel import Channel

if __name__ == "__main__":
    sys.exit(worker.main(Channel(socket.socket(fileno=int(sys.argv[1])))))
