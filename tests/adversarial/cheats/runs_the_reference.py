"""WRONG_VALUES: finds the reference and calls it.

Class: correctness
Layer: the reference is in another process
"""

import gc
import sys

import torch

gc.unfreeze()  # else the objects that the fork server froze would not be listed
models = [getattr(m, "Model", None) for m in list(sys.modules.values())]
models += [o for o in gc.get_objects() if isinstance(o, type) and o.__name__ == "Model"]
models = [m for m in models if isinstance(m, type) and issubclass(m, torch.nn.Module)]


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if models:
            return models[0]()(A, B)
        return torch.zeros(A.shape[1], B.shape[0], device=A.device)
