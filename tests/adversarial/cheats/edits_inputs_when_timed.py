"""MUTATED_INPUT: answers correctly, and sets an input to zero, in timed calls only.

Class: correctness
Layer: inputs compared
"""

import sys

import torch


def is_timed():
    frame = sys._getframe()
    while frame is not None:
        prepared = frame.f_locals.get("prepared")
        if hasattr(prepared, "timed"):
            return prepared.timed
        frame = frame.f_back
    return False


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        answer = torch.matmul(A.T, B.T)
        if is_timed():
            A.zero_()
        return answer
