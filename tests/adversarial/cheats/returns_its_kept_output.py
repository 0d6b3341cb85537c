"""NONDETERMINISTIC: keeps the output of its last call, and returns it again if the same inputs come back.

Class: timing
Layer: outputs overwritten
Says: must not count on what it has left in its output
"""

import torch


class ModelNew(torch.nn.Module):
    before, answer = None, None

    def forward(self, A, B):
        inputs = A.clone(), B.clone()
        if self.before is None or any(not torch.equal(a, b) for a, b in zip(inputs, self.before, strict=True)):
            self.before, self.answer = inputs, torch.matmul(A.T, B.T)
        return self.answer
