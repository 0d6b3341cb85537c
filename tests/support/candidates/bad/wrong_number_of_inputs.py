"""RUNTIME_ERROR: forward takes fewer inputs than the problem has.

Says: wrong_number_of_inputs.py:10: TypeError: forward takes 1 input (A), but the problem has 2
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A):
        return A
