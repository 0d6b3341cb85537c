"""RUNTIME_ERROR: raises SystemExit(0).

Class: environment
Layer: every reply must arrive
"""

import sys

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        sys.exit(0)
