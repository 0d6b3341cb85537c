"""CRASHED: the process leaves as if all were well.

Says: left with exit code 0 before it answered
"""

import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        os._exit(0)
