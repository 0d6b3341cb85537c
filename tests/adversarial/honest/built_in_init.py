"""PASSED: builds its kernel when the model is created, and only once."""

import functools

import torch
from torch.utils.cpp_extension import load_inline


@functools.cache
def built():
    return load_inline(
        name="built_in_init",
        cpp_sources="torch::Tensor product(torch::Tensor A, torch::Tensor B) { return at::mm(A.t(), B.t()); }",
        functions=["product"],
    )


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ops = built()

    def forward(self, A, B):
        return self.ops.product(A, B)
