"""CRASHED: claims that the judge can read its output where it lies, which is so on a GPU only.

Class: this harness
Layer: messages are checked
Says: described an invalid output
"""

import torch

from kernel_harness.ipc.messages import Called

honest = Called.to_json
PLACES = [{"region": 1 << 47, "offset": 0, "stride": [0, 0]}]
Called.to_json = lambda self: {**honest(self), "places": PLACES, "regions": [1 << 47]}


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
