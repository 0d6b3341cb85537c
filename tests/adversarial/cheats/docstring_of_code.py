"""PASSED: the docstring of a function ends the text of its binding and adds code of its own.

Class: environment
Layer: builds in a sandbox
"""

import torch
from torch.utils.cpp_extension import load_inline

INJECTED = '"); } static int two() { return 2; } void three(pybind11::module m) { (void)("'
load_inline(name="docstring_of_code", cpp_sources="int one() { return 1; }", functions={"one": INJECTED})


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
