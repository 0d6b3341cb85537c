"""CRASHED: reports a failed start of its process when it is timed.

Says: malformed message
"""

import gc

import torch

calls = 0


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        global calls
        calls += 1
        if calls > 6:  # the checks' calls
            worker = next(each for each in gc.get_objects() if type(each).__module__ == "kernel_harness.worker.worker")
            worker._stage = worker._stage.START
            raise RuntimeError("There is no memory left.")
        return torch.matmul(A.T, B.T)
