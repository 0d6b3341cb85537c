"""CRASHED: reports success and leaves with exit code 0.

Class: environment
Layer: every reply must arrive
Says: exit code 0
"""

import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        print("PASSED", flush=True)
        os._exit(0)
