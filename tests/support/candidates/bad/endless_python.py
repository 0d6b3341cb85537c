"""TIMEOUT: an endless loop in Python.

Says: No answer within
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        while True:
            pass
