"""WRONG_VALUES: writes "passed" to every descriptor it has, and again at its end.

Class: environment
Layer: verdict only in the judge
"""

import atexit
import json
import os

import torch

TEXT = json.dumps({"kernel": "writes_the_verdict", "status": "PASSED", "timing": {"time_ms": 1e-9}}) + "\n"


def say():
    for descriptor in (1, 2):
        os.write(descriptor, TEXT.encode())


atexit.register(say)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        say()
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
