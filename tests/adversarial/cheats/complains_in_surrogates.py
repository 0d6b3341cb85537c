"""RUNTIME_ERROR: raises an exception whose name and text no file can hold.

Class: this harness
Layer: messages are checked
"""

import torch

TEXT = "\ud800\x1b]0;title\x07</script>|"


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        error = type("Error", (RuntimeError,), {})(TEXT)
        type(error).__name__ = "E\x1b[31m"
        raise error
