"""Finds the hint, one sentence of advice, for a well-known compile error. The module `error_message` shows the hint."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Maps a pattern of names to the header that declares these names.
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
# Maps the prefix of a function's name to the library that defines the function.
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
    """Advice on a compile error.

    `text` is shown to the user. `about` is a regular expression for the line of the candidate's file that causes the
    error, or empty; it is used if the compiler reports the error in another file. `line_before` is true if the user
    must change the line before the reported one.
    """

    text: str
    about: str = ""
    line_before: bool = False


@dataclass(frozen=True)
class _Known:
    """A well-known compile error and the fields of its Hint.

    `error` is a regular expression for the compiler's message, followed by a line break and the line of code from the
    error's column on. In `about`, a word in braces such as `{kernel}` stands for the text of that named group of
    `error`.
    """

    error: str
    text: str
    about: str = ""
    line_before: bool = False


# torch passes definitions to nvcc that remove these. A source gets them back by undefining the names.
_HALF = (
    "torch's flags remove operators and conversions of half and bfloat16: pass extra_cuda_cflags="
    '["-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_HALF2_OPERATORS__", '
    '"-U__CUDA_NO_BFLOAT16_CONVERSIONS__"], or call __hadd, __hmul, __float2half and their like'
)
_KNOWN = (
    _Known(
        r"operator\S+' \(operand types? (?:are|is) '[^)]*\b(?:__)?half2?\b|call to '__(?:half|nv_bfloat16)::__"
        r"|(?:cannot convert|invalid \S+ from type|conversion from) '(?:const )?(?:__)?(?:half|nv_bfloat16)\b"
        r"|(?:construct\w*|conver\w*) (?:exists )?(?:to convert )?from [^\n]*\b__(?:half|nv_bfloat16)\b"
        r"|no operator \S+ matches these operands[^\n]*half",
        _HALF,
    ),
    _Known(
        r"conflicting declaration '[^']*\[\]|declaration is incompatible with previous",
        "all `extern __shared__` arrays of one name must have one type, in each instance of a template too: declare "
        "`extern __shared__ unsigned char name[]` and cast it",
    ),
    _Known(
        r"['\"]__(?:shfl(?:_up|_down|_xor)?|ballot|any|all)['\"] (?:was not declared|is undefined)",
        "CUDA has only the forms with a mask: __shfl_sync, __shfl_up_sync, __shfl_down_sync, __shfl_xor_sync, "
        "__ballot_sync, __any_sync and __all_sync, with 0xffffffff as the first argument for a whole warp",
    ),
    _Known(
        r"['\"]cudaThread(?:Synchronize|Exit)['\"] (?:was not declared|is undefined)",
        "CUDA 13 has no functions of this name: use cudaDeviceSynchronize or cudaDeviceReset",
    ),
    _Known(
        r"['\"](?:texture|cudaBindTexture\w*|cudaUnbindTexture)['\"] (?:was not declared|does not name|is undefined)"
        r"|texture is not a template",
        "CUDA has no texture references any more: read with __ldg, or create a texture object",
    ),
    _Known(
        r"has no member (?:named )?['\"](?:clockRate|memoryClockRate|deviceOverlap|computeMode)",
        "CUDA 13 has removed this member: call cudaDeviceGetAttribute, such as with cudaDevAttrClockRate",
    ),
    _Known(
        r"annotation on lambda requires",
        'pass extra_cuda_cflags=["--extended-lambda"]',
    ),
    _Known(
        r"too much global constant data",
        "put the data into device memory, and pass a pointer to the kernel: all __constant__ variables of a file share "
        "65536 bytes",
    ),
    _Known(
        r"ABI|basic_string<char, std::char_traits<char>, std::allocator<char> > const&",
        "torch is built with the new C++ ABI: remove -D_GLIBCXX_USE_CXX11_ABI from the flags",
        r"_GLIBCXX_USE_CXX11_ABI",
    ),
    _Known(
        r"C\+\+\d\d or later compatible compiler is required|requires at least C\+\+\d\d",
        "remove -std=... from extra_cflags and extra_cuda_cflags: torch sets the standard that its headers need",
        r"-std=[\w+]+",
    ),
    _Known(
        r"calling a __host__ function.* from a __(?:global|device)__ function",
        "put __device__ (or __host__ __device__) before the function that the kernel calls",
    ),
    _Known(
        r"requires separate compilation mode",
        "launch the kernel from the host: load_inline makes no device link step, which launches from device code need",
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
        "remove -arch and -gencode from the flags: the build is for this machine's GPU",
        r"(?:compute|sm)_{arch}|-gencode|-arch",
    ),
    _Known(
        r"cannot find -l(?P<library>[\w.+-]+)",
        "install the library, add its folder to extra_ldflags with -L, or correct its name",
        r"-l{library}\b",
    ),
    _Known(
        r"(?P<header>[\w./-]+): No such file|cannot open source file \"(?P<nvcc_header>[^\"]+)\"",
        "correct the header's name, copy its text into the source, or add its folder to extra_include_paths",
    ),
    _Known(
        r"a function-definition is not allowed here|expected ['\"]?}|expected a declaration|at end of input"
        r"|missing terminating|expected a \"}\"|local function definition|expected a \";\"\n{",
        "count the braces: a brace that is opened above this line is not closed",
    ),
    _Known(
        r"expected (?:',' or )?'?;|expected a \";\"|expected '[,;]' or ';",
        "end the statement with a semicolon",
        line_before=True,
    ),
    _Known(
        r"DeprecatedTypeProperties",
        "torch's macros take the type of the elements: write tensor.scalar_type() in place of tensor.type()",
        r"\.type\(\)",
    ),
    _Known(
        r"cannot convert .*Tensor.* to|no suitable conversion function from .*Tensor|argument of type .*Tensor",
        "a kernel takes pointers: pass tensor.data_ptr<float>() with the tensor's own element type",
    ),
    _Known(
        r"multiple definition of",
        "two sources define the symbol: only declare it in cpp_sources (with a semicolon), define it in cuda_sources",
    ),
    _Known(
        r"conflicting declaration|redeclar|redefinition|shadows a parameter|has already been declared",
        "the name is already declared in this scope: rename one of the two declarations",
    ),
)  # fmt: skip


def hint(error: str, source: str = "", column: int | None = None, log: str = "") -> Hint | None:
    """Returns the hint for the compiler's message `error`, or None if there is no hint for it.

    `source` is the line of code with the error, and `column` is the error's place in that line, counted from 0, or None
    if it is not known. `log` is the compiler's output after the error.
    """
    text = error if column is None else f"{error}\n{source[column:]}"
    for known in _KNOWN:
        match = re.search(known.error, text)
        if match:
            words = {name: re.escape(value or "") for name, value in match.groupdict().items()}
            about = known.about.format_map(words) if words else known.about
            return Hint(known.text, about, known.line_before)
    return _header(error, source, log)


def not_bindable(name: str) -> Hint:
    """Returns the hint for `name`, which load_inline's argument `functions` lists but no C++ source declares."""
    return Hint(
        f"declare the function in cpp_sources (torch::Tensor {name}(...);), or remove its name from functions",
        rf"""['"]{name}['"]""",
    )


def missing_symbol(symbol: str) -> Hint:
    """Returns the hint for `symbol`, a function that is declared and called, but not defined.

    `symbol` is the demangled name, with parameter types if it is a C++ function: `run(at::Tensor)`.
    """
    name = symbol.split("(")[0]
    if name.startswith("__cudaRegisterLinkedBinary"):
        return Hint(
            "remove -rdc=true, and launch kernels from the host only: load_inline makes no device link step, which "
            "relocatable device code and launches from device code need",
            r"-rdc=true|-dc\b|--relocatable-device-code",
        )
    if re.match(r"(?:c10|at|torch)::", symbol):
        return Hint(
            "the installed torch lacks this function: remove -D_GLIBCXX_USE_CXX11_ABI, or call another function",
            r"_GLIBCXX_USE_CXX11_ABI",
        )
    for prefix, library in _LIBRARIES.items():
        if name.startswith(prefix):
            return Hint(f'link the library {library}: extra_ldflags=["-l{library}"]', rf"\b{re.escape(name)}\b")
    return Hint(
        "the declaration in cpp_sources differs from every definition in cuda_sources: give both the same parameters",
        rf"\b{re.escape(name)}(?=\s*\([^{{]*\)\s*;)",
    )


def _header(error: str, source: str, log: str) -> Hint | None:
    """Returns the hint for the compiler's message `error` if it reports an undeclared name, otherwise None.

    The hint names the header to include: the one that the compiler suggests in `log`, else the one that declares the
    name. Without a known header, it is general advice, or None if the compiler already suggests a similar name.
    """
    found = _UNDECLARED.search(error)
    if not found and "must be a class or namespace name" not in error and "not been declared" not in error:
        return None
    own = re.search(r"did you forget to '(#include <\S+>)", log)
    if own:
        return Hint(f"add {own[1]}")
    name = next((group for group in found.groups() if group), "") if found else ""
    # If a whole header is missing, nvcc reports only the namespace. The line of code shows the full name.
    wanted = [name] if name else []
    wanted += re.findall(r"[\w]+(?:::\w+)*", source) if name in ("", "at", "c10", "cuda", "torch") else []
    for word in wanted:
        for names, header in _HEADERS.items():
            if re.fullmatch(names, word) or re.fullmatch(names, word.split("::")[-1]):
                return Hint(f"add #include {header}")
    if not name or "did you mean" in error:
        return None
    return Hint("correct the name's spelling, declare it before this line, or include the header that declares it")
