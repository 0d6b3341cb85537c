"""Finds the line of a candidate's source that may have reduced the precision of its output."""

from __future__ import annotations

import re
from dataclasses import replace

from kernel_harness.checking.verify import Check
from kernel_harness.core.status import Status

# The names of number formats that are narrower than float32, in CUDA, in C++ with torch and in Python.
_NARROW = re.compile(
    r"\b(?:__half\w*|half2?(?=\s+[A-Za-z_]\w*\s*[=;,\[()]|\s*\*\s*[A-Za-z_]\w*\s*[=,\[()])|(?:__)?nv_bfloat162?|precision::tf32|allow_tf32|"
    r"CUBLAS_COMPUTE_(?:16F|32F_FAST_)\w*|CUBLAS_TF32_TENSOR_OP_MATH|(?:at|c10|torch)::(?:B?Half|BFloat16|kHalf|kBFloat16)|"
    r"torch\.(?:b?float16|half)|(?:__)?floats?2half2?\w*|mma\.sync[\w.]*(?:tf32|f16|bf16)[\w.]*)|"
    r"\.half\(\)|\.bfloat16\(\)"
)
_TRITON_DOT = re.compile(r"\btl\.dot\((?!.*input_precision)")
# The patterns take a time that grows with the square of a line's length.
_LONGEST_LINE = 1000
_COMMENT = re.compile(r"//.*|#(?!\s*(?:define|include|if|pragma)).*")


def advised(check: Check, source: str) -> Check:
    """Returns the check with advice if its status is REDUCED_PRECISION and it has no advice; otherwise unchanged.

    `source` is the text of the candidate's file. The advice names the first line that, outside a comment, names a
    number format narrower than float32 or calls Triton's `dot` without `input_precision`. If there is no such line, the
    advice says that a wrong formula may cause an error of this size.
    """
    if check.status is not Status.REDUCED_PRECISION or check.advice:
        return check
    for number, line in enumerate(source.split("\n"), 1):
        code = _COMMENT.sub("", line[:_LONGEST_LINE])
        if found := _NARROW.search(code):
            return replace(check, advice=f"line {number} uses {found[0]}: keep products and sums in float32")
        if _TRITON_DOT.search(code):
            told = f"line {number}: tl.dot multiplies float32 numbers as TF32"
            return replace(check, advice=f'{told}: write tl.dot(..., input_precision="ieee")')
    return replace(
        check,
        advice="no line of the source names a narrower format. A formula that is slightly wrong gives an error of this "
        "size, too: look for a term that is left out or a constant that is rounded. On a GPU, torch's convolutions use "
        "TF32 by default",
    )
