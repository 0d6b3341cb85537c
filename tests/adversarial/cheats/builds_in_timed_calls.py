"""RUNTIME_ERROR: builds its answer into a library, which a copy of itself would find in the build cache.

Class: this harness
Layer: no new libraries while timed
Says: built new libraries
"""

import torch
from torch.utils.cpp_extension import load_inline


class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, A, B):
        C = torch.matmul(A.T, B.T)
        self.calls += 1
        if self.calls > 8:
            answer = C.view(torch.int32)[0, 0].item()
            load_inline(
                name="answer",
                cpp_sources=f"int answer = {answer};",
                is_python_module=False,
                no_implicit_headers=True,
            )
        return C
