"""WRONG_VALUES: detects a timed call from the caller's frame, and then returns an old answer.

Class: timing
Layer: audits after the call
Says: timed call
"""

import sys

import torch


def is_timed():
    frame = sys._getframe()
    while frame:
        if getattr(frame.f_locals.get("prepared"), "timed", False):
            return True
        frame = frame.f_back
    return False


class ModelNew(torch.nn.Module):
    last = None

    def forward(self, A, B):
        if self.last is None or self.last.shape != (A.shape[1], B.shape[0]) or not is_timed():
            self.last = torch.matmul(A.T, B.T)
        return self.last
