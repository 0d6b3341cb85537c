"""RUNTIME_ERROR: the exception's words are no text that can be written to a file, and look like a table.

Says: odd_words.py:11: RuntimeError:
"""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        raise RuntimeError("\ud800 | a | b |\x1b[31m\0")
