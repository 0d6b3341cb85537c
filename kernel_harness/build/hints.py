"""What to do about the compile errors that everybody meets. How they are shown is no matter here."""

from __future__ import annotations

import re
from dataclasses import dataclass

# What is declared where, by the names that authors use.
_HEADERS = {
    r"getCurrentCUDA(?:Stream|BlasHandle)|getStreamFromPool|at::cuda|CUDAContext": "<ATen/cuda/CUDAContext.h>",
    r"C10_CUDA_CHECK|C10_CUDA_KERNEL_LAUNCH_CHECK": "<c10/cuda/CUDAException.h>",
    r"AT_CUDA_CHECK|TORCH_CUDABLAS_CHECK": "<ATen/cuda/Exceptions.h>",
    r"CUDAGuard|OptionalCUDAGuard|DeviceGuard": "<c10/cuda/CUDAGuard.h>",
    r"CUDAStream|c10::cuda": "<c10/cuda/CUDAStream.h>",
    r"__half2?|half2?|__float2half\w*|__half2float|hadd\w*": "<cuda_fp16.h>",
    r"__nv_bfloat16\w*|__float2bfloat16\w*|__bfloat162float": "<cuda_bf16.h>",
    r"wmma|nvcuda": "<mma.h>",
    r"cooperative_groups|cg": "<cooperative_groups.h>",
    r"cublas\w+|CUBLAS_\w+": "<cublas_v2.h>",
    r"curand\w+": "<curand_kernel.h>",
    r"cub": "<cub/cub.cuh>",
    r"AT_DISPATCH_\w+": "<ATen/Dispatch.h>",
    r"torch|TORCH_CHECK|torch::\w+": "<torch/extension.h>",
    r"FLT_MAX|FLT_MIN|FLT_EPSILON|DBL_MAX": "<cfloat>",
    r"INT_MAX|INT_MIN|UINT_MAX": "<climits>",
    r"u?int(?:8|16|32|64)_t|INT32_MAX|INT64_MAX": "<cstdint>",
}
_LIBRARIES = {
    "cublasLt": "cublasLt", "cublas": "cublas", "cudnn": "cudnn", "curand": "curand", "cufft": "cufft",
    "cusparse": "cusparse", "cusolver": "cusolver", "nvrtc": "nvrtc",
}  # fmt: skip
_UNDECLARED = re.compile(
    r"(?:['\"](?P<name>[\w:]+)['\"](?: is undefined| was not declared| has not been declared| is not a member of"
    r"| does not name a type)|has no member ['\"](?P<member>\w+)|identifier ['\"](?P<nvcc>\w+)['\"] is undefined)"
)


@dataclass(frozen=True)
class Hint:
    """What to do, and a pattern for the line of the author's file that it is about, where the error names none."""

    text: str
    about: str = ""
    line_before: bool = False


@dataclass(frozen=True)
class _Known:
    """A well-known error: what it says, what to do, a pattern (with the match's groups) of the line it is about."""

    error: str
    text: str
    about: str = ""
    line_before: bool = False


_KNOWN = (
    _Known(
        r"ABI|basic_string<char, std::char_traits<char>, std::allocator<char> > const&",
        "torch is built with the new C++ ABI: drop -D_GLIBCXX_USE_CXX11_ABI from the flags",
        r"_GLIBCXX_USE_CXX11_ABI",
    ),
    _Known(
        r"C\+\+\d\d or later compatible compiler is required|requires at least C\+\+\d\d",
        "drop -std=... from extra_cflags and extra_cuda_cflags: torch chooses the standard that its headers need",
        r"-std=[\w+]+",
    ),
    _Known(
        r"calling a __host__ function.* from a __(?:global|device)__ function",
        "put __device__ (or __host__ __device__) before the function that the kernel calls",
    ),
    _Known(
        r"a __global__ function call must be configured",
        "launch the kernel with name<<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(...)",
    ),
    _Known(
        r"Entry function '(?P<kernel>\w+)[^']*' uses too much shared data \((?P<has>\w+) bytes, (?P<most>\w+) max\)",
        "use a smaller tile, or dynamic shared memory (extern __shared__) with cudaFuncSetAttribute"
        "(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)",
        r"\b{kernel}(?=\s*\()",
    ),
    _Known(
        r"Unsupported gpu architecture '(?:compute|sm)_(?P<arch>\w+)'|is not defined for option '?-?-?gpu-arch",
        "leave -arch and -gencode out: the harness compiles for the GPU that is there",
        r"(?:compute|sm)_{arch}|-gencode|-arch",
    ),
    _Known(
        r"cannot find -l(?P<library>[\w.+-]+)",
        "install the library, give its folder with -L in extra_ldflags, or correct its name",
        r"-l{library}\b",
    ),
    _Known(
        r"(?P<header>[\w./-]+): No such file|cannot open source file \"(?P<nvcc_header>[^\"]+)\"",
        "correct the name, put the text into the file itself, or give the header's folder in extra_include_paths",
    ),
    _Known(
        r"a function-definition is not allowed here|expected ['\"]?}|expected a declaration|at end of input"
        r"|missing terminating|expected a \"}\"|local function definition|expected a \";\"\n{",
        "count the braces: one that is opened above is never closed",
    ),
    _Known(
        r"expected (?:',' or )?'?;|expected a \";\"|expected '[,;]' or ';",
        "end the statement with a semicolon",
        line_before=True,
    ),
    _Known(
        r"cannot convert .*Tensor.* to|no suitable conversion function from .*Tensor|argument of type .*Tensor",
        "a kernel takes pointers: pass tensor.data_ptr<float>() with the tensor's own element type",
    ),
    _Known(
        r"multiple definition of",
        "two sources define it: declare it in cpp_sources (with a semicolon) and define it in cuda_sources only",
    ),
    _Known(
        r"conflicting declaration|redeclar|redefinition|has already been declared",
        "the name is taken in this scope: rename one of the two",
    ),
)  # fmt: skip


def hint(error: str, source: str = "", column: int | None = None, log: str = "") -> Hint | None:
    """What to do about an error; None for one that nobody wrote down.

    `source` is the line it is in, `column` where it is in that, `log` what the compiler says after it.
    """
    subject = error if column is None else f"{error}\n{source[column:]}"
    for known in _KNOWN:
        match = re.search(known.error, subject)
        if match:
            words = {name: re.escape(value or "") for name, value in match.groupdict().items()}
            about = known.about.format_map(words) if words else known.about
            return Hint(known.text, about, known.line_before)
    return _header(error, source, log)


def not_bindable(name: str) -> Hint:
    """What to do about a name in `functions` that the bindings cannot use."""
    return Hint(
        f"declare it in cpp_sources (torch::Tensor {name}(...);), or name in functions one that is declared there",
        rf"""['"]{name}['"]""",
    )


def missing_symbol(symbol: str) -> Hint:
    """What to do about a function that is declared and called, and defined nowhere."""
    name = symbol.split("(")[0]
    if re.match(r"(?:c10|at|torch)::", symbol):
        return Hint(
            "torch has this function under another name: drop -D_GLIBCXX_USE_CXX11_ABI, or build for this torch",
            r"_GLIBCXX_USE_CXX11_ABI",
        )
    for prefix, library in _LIBRARIES.items():
        if name.startswith(prefix):
            return Hint(f'link its library: extra_ldflags=["-l{library}"]', rf"\b{re.escape(name)}\b")
    return Hint(
        "its declaration in cpp_sources differs from every definition in cuda_sources: make the two alike",
        rf"\b{re.escape(name)}(?=\s*\([^{{]*\)\s*;)",
    )


def _header(error: str, source: str, log: str) -> Hint | None:
    """The header of a name that nobody declared, as far as it is known; the compiler's own advice first."""
    found = _UNDECLARED.search(error)
    if not found and "must be a class or namespace name" not in error and "not been declared" not in error:
        return None
    own = re.search(r"did you forget to '(#include <\S+>)", log)
    if own:
        return Hint(f"add {own[1]}")
    name = next((group for group in found.groups() if group), "") if found else ""
    # nvcc blames the namespace where its whole header is missing: then the line says what was wanted.
    wanted = [name] if name else []
    wanted += re.findall(r"[\w]+(?:::\w+)*", source) if name in ("", "at", "c10", "cuda", "torch") else []
    for word in wanted:
        for names, header in _HEADERS.items():
            if re.fullmatch(names, word) or re.fullmatch(names, word.split("::")[-1]):
                return Hint(f"add #include {header}")
    if not name or "did you mean" in error:
        return None
    return Hint("correct its spelling, declare it before this line, or include the header that does")
