"""TIMEOUT: an endless loop in __init__.

Says: No answer within
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        while True:
            pass
