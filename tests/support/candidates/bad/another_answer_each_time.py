"""NONDETERMINISTIC: right the first time it sees an input, wrong when it sees the same again.

Says: The second call with the same input gave a different answer
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = None

    def forward(self, A, B):
        again = self.seen is not None and torch.equal(self.seen, A)
        self.seen = A.clone()
        return torch.matmul(A.T, B.T) + int(again)
