"""RUNTIME_ERROR: an exception in __init__.

Says: init_raises.py:12: KeyError: 'weight'
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = {}["weight"]
