"""Corrects the arithmetic of Triton's interpreter on bfloat16.

The interpreter stores the bits of a bfloat16 number as an integer. Its own operations wrongly compute with the
integers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_OPERATIONS = (
    "binary_op", "unary_op", "create_erf", "create_rsqrt", "create_fma", "create_clampf", "create_dot"
)  # fmt: skip


def install(interpreter: Any, language: Any) -> None:
    """Replaces arithmetic, casts, reductions and scans of the interpreter by functions that are right for bfloat16.

    They convert bfloat16 operands to float32 before the operation. A result of the type bfloat16 is rounded to the
    nearest bfloat16 number, as on a GPU, unless a conversion asks for truncation. Operations on other types give the
    same results as before.
    `interpreter` and `language` are the modules `triton.runtime.interpreter` and `triton.language`.
    """
    correction, builder = _Correction(interpreter, language), interpreter.InterpreterBuilder
    for name in _OPERATIONS:
        if hasattr(builder, name):
            setattr(builder, name, correction.operation(getattr(builder, name)))
    builder.cast_impl = correction.cast(builder.cast_impl)
    builder.create_fp_to_fp = correction.conversion(builder.create_fp_to_fp)
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply_impl = correction.reduction(kind.apply_impl)


def to_float32(stored: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns float32 numbers of the same shape. `stored` are bfloat16 numbers in the bits of uint16."""
    return (stored.astype(np.uint32) << 16).view(np.float32)


def from_float32(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns bfloat16 numbers in the bits of uint16: float32 `values`, rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).reshape(values.shape)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


class _Correction:
    """Replaces methods of the interpreter. A handle is the interpreter's value: a numpy array `data` and its type."""

    def __init__(self, interpreter: Any, language: Any) -> None:
        self._handle, self._tensor, self._block = interpreter.TensorHandle, language.core.tensor, language.block_type
        self._narrow, self._wide = language.bfloat16, language.float32
        self._truncates = interpreter._ir.ROUNDING_MODE.RTZ

    def _widened(self, value: Any) -> Any:
        if isinstance(value, self._handle) and value.dtype.scalar == self._narrow:
            return self._handle(to_float32(value.data), self._wide)
        return value

    def _narrowed(self, value: Any) -> Any:
        if value.data.dtype == np.float32:  # the result of a comparison is not
            return self._handle(from_float32(value.data), self._narrow)
        return value

    def operation(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `compute`, an operation of the interpreter's builder, made right for bfloat16 operands."""
        typed_by = 2 if compute.__name__ == "create_dot" else 0  # a product has the type of the sum it is added to

        @functools.wraps(compute)
        def corrected(builder: Any, *operands: Any) -> Any:
            wide = [self._widened(each) for each in operands]
            result = compute(builder, *wide)
            return self._narrowed(result) if wide[typed_by] is not operands[typed_by] else result

        return corrected

    def cast(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `convert`, the builder's cast, made right for bfloat16: it rounds to the nearest bfloat16 number."""

        def corrected(builder: Any, source: Any, target: Any) -> Any:
            if target.scalar == self._narrow and source.dtype.scalar != self._narrow:
                return self._handle(from_float32(source.data.astype(np.float32)), self._narrow)
            return convert(builder, source if target.scalar == self._narrow else self._widened(source), target)

        return corrected

    def conversion(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `convert`, the builder's conversion between floating-point types, made right for bfloat16.

        It rounds to the nearest bfloat16 number, unless the kernel asks for truncation.
        """

        def corrected(builder: Any, source: Any, target: Any, rounding: Any) -> Any:
            if self._narrow in (source.dtype.scalar, target.scalar) and rounding != self._truncates:
                return builder.cast_impl(source, target)
            return convert(builder, source, target, rounding)

        return corrected

    def reduction(self, reduce: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `reduce`, a reduction or scan, which computes with float32 and then rounds results to bfloat16."""

        @functools.wraps(reduce)
        def corrected(operation: Any, values: Sequence[Any]) -> Any:
            if all(value.dtype != self._narrow for value in values):
                return reduce(operation, values)
            results = reduce(operation, tuple(self._typed(value, self._widened(value.handle)) for value in values))
            if isinstance(results, (list, tuple)):
                return [self._rounded(each) for each in results]
            return self._rounded(results)

        return corrected

    def _rounded(self, value: Any) -> Any:
        return self._typed(value, self._narrowed(value.handle)) if value.dtype == self._wide else value

    def _typed(self, value: Any, handle: Any) -> Any:
        """Returns a tensor of the language with the shape of `value` and the data and type of `handle`."""
        kind = handle.dtype.scalar
        return self._tensor(handle, self._block(kind, list(value.shape)) if value.shape else kind)
