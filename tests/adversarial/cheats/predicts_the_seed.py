"""WRONG_VALUES: draws the inputs of every likely seed in advance, and knows the answers.

Class: correctness
Layer: no seed in a worker
"""

import sys

import torch

seeds = [*range(20), 42, 1234]
frame = sys._getframe()
while frame:
    for value in list(frame.f_locals.values()):
        if isinstance(value, dict):
            seeds += [v for v in value.values() if type(v) is int and v > 0]
    frame = frame.f_back
known = {}
for seed in seeds:
    torch.manual_seed(seed)
    A, B = torch.rand(256, 32), torch.rand(48, 256)
    known[float(A[0, 0])] = torch.matmul(A.T, B.T)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        answer = known.get(float(A[0, 0]))
        return torch.zeros(A.shape[1], B.shape[0], device=A.device) if answer is None else answer.cuda()
