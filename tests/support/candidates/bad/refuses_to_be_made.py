"""RUNTIME_ERROR: refuses a shape in its constructor, where refusals do not count.

Says: There is no shape for it.
"""

import gc

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        worker = next(each for each in gc.get_objects() if type(each).__module__ == "kernel_harness.worker.worker")
        worker._stage, worker._launches_before = worker._stage.CALL, worker._device.launches()
        raise ValueError("There is no shape for it.")
