"""PASSED: replaces the harness's statistics that it finds in the process, so that it looks fast.

Class: timing
Layer: verdict only in the judge
Takes: 10 ms
"""

import gc
import statistics
import sys
import types

import numpy
import torch


def forged(*args, **kwargs):
    return 1e-9


for module in (statistics, numpy):
    module.median = module.mean = forged
for name, module in list(sys.modules.items()):
    if name.startswith("kernel_harness.") or name == "__main__":
        for word in ("summarize", "ratio_interval", "median_interval", "time_ms"):
            setattr(module, word, forged)
gc.unfreeze()  # else the objects that the fork server froze would not be listed
for found in gc.get_objects():
    if isinstance(found, types.FunctionType) and found.__name__ in ("summarize", "_scores", "ratio_interval"):
        found.__code__ = forged.__code__


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        torch.cuda._sleep(1 << 25)
        return torch.matmul(A.T, B.T)
