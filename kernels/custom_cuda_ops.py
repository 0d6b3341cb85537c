"""A helper for kernel files: compiles CUDA source in a string into callable functions.

A kernel file imports it with `from custom_cuda_ops import create_cuda_op`. torch's load_inline does the build.
"""

from types import ModuleType

from torch.utils import cpp_extension


def create_cuda_op(cpp_source: str, cuda_source: str, functions: list[str], name: str, **flags: object) -> ModuleType:
    """Compile `cuda_source` and return a module that has `functions` as attributes.

    Args:
        cpp_source: C++ declarations of the functions, such as `at::Tensor f(at::Tensor x);`.
        cuda_source: CUDA source that defines them.
        functions: the names to bind, each declared in `cpp_source`.
        name: a valid C++ identifier, different for every op of a process.
        flags: any further keyword of `torch.utils.cpp_extension.load_inline`, such as
            `extra_cuda_cflags=["-lineinfo"]` or `extra_ldflags=["-lcublas"]`.

    Raises:
        RuntimeError: the sources do not compile; the message holds the compiler's output.
        OSError: no CUDA toolkit was found.
        TypeError: `load_inline` has no keyword of that name.
    """
    return cpp_extension.load_inline(
        name=name,
        cpp_sources=[cpp_source],
        cuda_sources=[cuda_source],
        functions=list(functions),
        **flags,
    )
