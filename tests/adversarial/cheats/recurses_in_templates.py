"""BUILD_ERROR: a template that instantiates itself a million times ends the compiler.

Class: environment
Layer: builds in a sandbox
"""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
template <int N> struct Deep { static constexpr int value = Deep<N - 1>::value + 1; };
template <> struct Deep<0> { static constexpr int value = 1; };
int one() { return Deep<899999>::value; }
"""
FLAGS = ["-ftemplate-depth=1000000"]
load_inline(name="recurses_in_templates", cpp_sources=SOURCE, functions=["one"], extra_cflags=FLAGS)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
