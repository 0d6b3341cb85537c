"""A small problem: each element times two."""

PROBLEM = """
import torch

N = 256

class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x

def get_inputs():
    return [torch.randn(N)]
"""
