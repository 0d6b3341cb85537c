"""WRONG_VALUES: answers the sanitizer with findings whose numbers are too large for a text, so that the judge fails.

Class: this harness
Layer: messages are checked
"""

import torch
from torch.utils.cpp_extension import load_inline

from kernel_harness.ipc import messages
from kernel_harness.worker import worker

place = {"file": "x", "line": 1, "thread": [0, 0, 0], "block": [0, 0, 0], "write": True}
finding = {"kind": "out-of-bounds read", "kernel": "k", "here": place, "bytes": 4, "detail": "", "count": 1}
huge = {"place": "device", "name": "", "bytes": -(10**4299), "offset": 10**4300 - 1}
forged = [{**finding, "buffer": buffer} for buffer in ({}, False, huge)]
worker._HANDLERS[messages.GetFindings] = lambda *_: messages.Recorded(forged)

# The sanitizer looks only at candidates that build something.
load_inline(name="forged_findings", cpp_sources="int one() { return 1; }", functions=["one"])


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T) + 1
