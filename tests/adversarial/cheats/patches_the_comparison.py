"""WRONG_VALUES: makes every comparison of tensors say "equal", and every random tensor zero.

Class: correctness
Layer: verdict only in the judge
"""

import sys

import torch

torch.allclose = torch.equal = torch.testing.assert_close = lambda *args, **kwargs: True
torch.Tensor.__eq__ = lambda self, other: torch.ones(self.shape, dtype=torch.bool)
torch.rand = torch.randn = lambda *shape, **kwargs: torch.zeros(*shape)
for name, module in list(sys.modules.items()):
    if name.startswith("kernel_harness"):
        for word in ("verify", "compare", "unchanged", "same", "damaged"):
            if hasattr(module, word):
                setattr(module, word, lambda *args, **kwargs: True)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
