"""The judge's side of worker processes: starts them, sends them requests, enforces their limits and kills them."""

import sys

if sys.platform != "linux":
    raise ImportError("The harness needs Linux: it uses memfd, subreapers and /proc.")
