"""Operations of Triton's interpreter for many programs at once. Import this module only after Triton.

The data of each value get a further axis, the first one: it has an element for each program, or one for all of them. So
a scalar has the shape (1,) or (programs,), and a block of 16 x 8 has (1, 16, 8) or (programs, 16, 8).
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, cast

import numpy as np

from cuda_on_cpu.emulator.triton_memory import Array, Memory

interpreter: Any = importlib.import_module("triton.runtime.interpreter")
language: Any = importlib.import_module("triton.language")
Handle: Any = interpreter.TensorHandle
Tensor: Any = language.core.tensor


class NotTogether(Exception):
    """The exception raised by an operation that only the interpreter for one program has."""


class Diverged(Exception):
    """The exception raised where Python needs a number that differs among the programs. `values` has it for each."""

    def __init__(self, values: Array) -> None:
        super().__init__("programs take different ways")
        self.values = values


def _unsupported(self: Any, *_: Any, **__: Any) -> Any:
    raise NotTogether


class Programs(interpreter.InterpreterBuilder):  # type: ignore[misc]
    """The interpreter's operations on values of several programs."""

    def __init__(self, memory: Memory, plain: Any) -> None:
        super().__init__()
        self.codegen_fns, self.options = plain.codegen_fns, plain.options
        self.memory = memory
        self.ids: list[Array]  # of the programs, in x, y and z
        self.atomics = False  # whether there was an atomic operation
        self.widest = 1  # the elements of the largest block so far

    def _noted(self, shape: Sequence[int]) -> tuple[int, ...]:
        self.widest = max(self.widest, int(np.prod(shape)))
        return tuple(shape)

    def create_get_program_id(self, axis: int) -> Any:
        return Handle(self.ids[axis], language.int32)

    def create_load(self, pointers: Any, cache: Any, is_volatile: bool) -> Any:
        return self.create_masked_load(pointers, None, None, cache, is_volatile)

    def create_store(self, pointers: Any, value: Any, cache: Any) -> None:
        self.create_masked_store(pointers, value, None, cache)

    def create_masked_load(self, pointers: Any, mask: Any, other: Any, cache_policy: Any, is_volatile: bool) -> Any:
        if is_volatile:  # it may wait for another program
            raise NotTogether
        kind = pointers.get_element_ty()
        self._noted(pointers.data.shape[1:])
        inside, instead = (None if each is None else each.data for each in (mask, other))
        data = self.memory.load(pointers.data, inside, interpreter._get_np_dtype(kind), instead)
        return Handle(data, kind)

    def create_masked_store(self, pointers: Any, value: Any, mask: Any, cache_policy: Any) -> None:
        # Also where all programs store one value at one place.
        addresses, data, *_ = _aligned(pointers.data, value.data)
        self.memory.store(addresses, data, None if mask is None else mask.data)

    def create_atomic_rmw(self, operation: Any, pointers: Any, value: Any, mask: Any, *order: Any) -> Any:
        self.atomics = True
        count = len(self.ids[0])
        shape = np.broadcast_shapes((count,), pointers.data.shape[:1]) + pointers.data.shape[1:]
        parts = [np.ascontiguousarray(np.broadcast_to(each.data, shape)) for each in (pointers, value, mask)]
        addresses = parts[0][parts[2]]
        if addresses.size:
            self.memory.keep(addresses, parts[1].dtype)
        return super().create_atomic_rmw(
            operation, *(Handle(part, each.dtype) for part, each in zip(parts, (pointers, value, mask), strict=True)),
            *order,
        )  # fmt: skip

    def binary_op(self, left: Any, right: Any, operation: Any) -> Any:
        return super().binary_op(*_aligned_handles(left, right), operation)

    def ternary_op(self, left: Any, right: Any, other: Any, operation: Any) -> Any:
        return super().ternary_op(*_aligned_handles(left, right, other), operation)

    def create_idiv(self, left: Any, right: Any) -> Any:
        return super().create_idiv(*_aligned_handles(left, right))

    def create_addptr(self, pointer: Any, offset: Any) -> Any:
        return super().create_addptr(*_aligned_handles(pointer, offset))

    def create_reshape(self, value: Any, shape: Sequence[int], allow_reorder: bool) -> Any:
        return Handle(value.data.reshape(len(value.data), *shape), value.dtype.scalar)

    def create_trans(self, value: Any, order: Sequence[int]) -> Any:
        return Handle(np.transpose(value.data, (0, *(axis + 1 for axis in order))), value.dtype.scalar)

    def create_make_range(self, kind: Any, start: int, stop: int) -> Any:
        self._noted((stop - start,))
        return Handle(np.arange(start, stop, dtype=np.int32)[None], language.int32)

    def create_expand_dims(self, value: Any, axis: int) -> Any:
        return Handle(np.expand_dims(value.data, axis + 1), value.dtype.scalar)

    def create_broadcast(self, value: Any, shape: Sequence[int]) -> Any:
        return Handle(np.broadcast_to(value.data, (len(value.data), *self._noted(shape))), value.dtype.scalar)

    def create_splat(self, kind: Any, value: Any) -> Any:
        shape = self._noted(kind.shape)
        data = value.data.astype(interpreter._get_np_dtype(value.dtype), copy=False)
        data = data.reshape(len(data), *(1 for _ in shape))
        return Handle(np.broadcast_to(data, (len(data), *shape)), value.dtype.scalar)

    def create_unsplat(self, value: Any) -> Any:
        return Handle(value.data.reshape(len(value.data)), value.dtype.scalar)

    def create_cat(self, left: Any, right: Any) -> Any:
        return Handle(np.concatenate(_together(left.data, right.data), axis=1), left.dtype.scalar)

    def create_join(self, left: Any, right: Any) -> Any:
        return Handle(np.stack(_together(left.data, right.data), axis=-1), left.dtype.scalar)

    def create_gather(self, source: Any, indices: Any, axis: int) -> Any:
        data, at = _together(source.data, indices.data)
        return Handle(np.take_along_axis(data, at, axis=axis if axis < 0 else axis + 1), source.dtype.scalar)

    create_descriptor_gather = create_descriptor_scatter = create_histogram = create_print = _unsupported
    create_atomic_cas = create_atomic_load = create_atomic_store = create_atomic_poll = _unsupported


def _aligned(*arrays: Array) -> list[Array]:
    """Returns arrays with equal numbers of axes. Further axes of length 1 follow the first axis, that of programs."""
    most = max(array.ndim for array in arrays)
    return [
        array.reshape(array.shape[:1] + (1,) * (most - array.ndim) + array.shape[1:]) if array.ndim < most else array
        for array in arrays
    ]


def _aligned_handles(*handles: Any) -> list[Any]:
    first = handles[0].data.ndim
    if all(handle.data.ndim == first for handle in handles):
        return list(handles)
    arrays = _aligned(*(handle.data for handle in handles))
    return [Handle(array, handle.dtype) for array, handle in zip(arrays, handles, strict=True)]


def _together(*arrays: Array) -> list[Array]:
    """Returns the arrays with one length of the first axis, that of programs."""
    count = max(len(array) for array in arrays)
    return [np.broadcast_to(array, (count, *array.shape[1:])) for array in arrays]


def _descriptor_pointers(descriptor: Any, offsets: Sequence[Any]) -> tuple[Any, Any]:
    """Returns the pointers to a block of a tensor descriptor and their mask, for several programs."""
    size, rank = descriptor.base.dtype.element_ty.primitive_bitwidth // 8, descriptor.ndim
    if (offsets[-1].data * size % 16).any():
        raise NotTogether
    pointers, mask = descriptor.base.data.reshape(-1, *[1] * rank), np.array(True)
    for axis, (offset, length) in enumerate(zip(offsets, descriptor.block_shape, strict=True)):
        shape = [-1, *[1] * rank]
        shape[axis + 1] = length
        at = (offset.data[:, None].astype(np.int64) + np.arange(length)).reshape(shape)
        pointers = pointers + (size * at * descriptor.strides[axis].data.reshape(-1, *[1] * rank)).astype(np.uint64)
        mask = mask & (at >= 0) & (at < descriptor.shape[axis].data.reshape(-1, *[1] * rank))
    whole = np.broadcast_to(mask, (len(pointers), *descriptor.block_shape))
    return Handle(pointers, descriptor.base.dtype.scalar), Handle(whole, language.int1)


def is_active() -> bool:
    """Returns whether values of the interpreter have an axis of programs now."""
    return isinstance(interpreter.interpreter_semantic.builder, Programs)


class _Axes:
    """What reductions and scans share: axes of the language, after the axis of programs."""

    axis: Any
    combine_fn: Any

    def _tensor(self, data: Array, kind: Any) -> Any:
        data = data.astype(interpreter._get_np_dtype(kind), copy=False)
        shape = list(data.shape[1:])
        return Tensor(Handle(data, kind.scalar), language.block_type(kind, shape) if shape else kind)

    def _combined(self, left: Sequence[Array], right: Sequence[Array], kinds: Sequence[Any]) -> list[Array]:
        """Returns the results of the kernel's own function on arrays whose axis of the operation is taken out."""
        operands = [self._tensor(each, kind) for each, kind in zip([*left, *right], [*kinds, *kinds], strict=True)]
        results = self.combine_fn.fn(*operands)
        results = results if isinstance(results, tuple) else (results,)
        shape = right[0].shape
        return [
            np.broadcast_to(each.handle.data if isinstance(each, Tensor) else np.array([each]), shape)
            for each in results
        ]


class Reductions(interpreter.ReduceOps, _Axes):  # type: ignore[misc]
    """Reductions of values of several programs, or of one without an axis of programs."""

    def apply_impl(self, values: Any) -> Any:
        if not is_active():
            return super().apply_impl(values)
        rank = len(values[0].shape)
        arrays = [value.handle.data for value in values]
        if self.axis is None:
            arrays, axis = [array.reshape(len(array), -1) for array in arrays], 1
        else:
            axis = self.axis % rank + 1
        kinds = [value.dtype for value in values]
        results = self._reduced(arrays, axis, kinds)
        if self.keep_dims:
            added = tuple(range(1, rank + 1)) if self.axis is None else axis
            results = [(np.expand_dims(data, added), kind) for data, kind in results]
        return [self._tensor(data, kind) for data, kind in results]

    def _reduced(self, arrays: list[Array], axis: int, kinds: list[Any]) -> list[tuple[Array, Any]]:
        """Returns the reduced arrays without the axis, each with its type."""
        standard, function = language.standard, self.combine_fn
        if function is standard._sum_combine:
            return [(np.sum(arrays[0], axis=axis), kinds[0])]
        for names, value, index in (
            ("argmin_combine_tie_break_left argmin_combine_tie_break_fast", np.nanmin, np.nanargmin),
            ("argmax_combine_tie_break_left argmax_combine_tie_break_fast", np.nanmax, np.nanargmax),
            ("elementwise_max", np.nanmax, None), ("elementwise_min", np.nanmin, None),
        ):  # fmt: skip
            if any(function is getattr(standard, f"_{name}") for name in names.split()):
                found = [(value(arrays[0], axis=axis), kinds[0])]
                return [*found, (index(arrays[0], axis=axis), language.int32)] if index else found
        moved = [np.moveaxis(array, axis, 0) for array in arrays]
        total = [each[0] for each in moved]
        for i in range(1, len(moved[0])):
            total = self._combined(total, [each[i] for each in moved], kinds)
        return list(zip(total, kinds, strict=True))


class Scans(interpreter.ScanOps, _Axes):  # type: ignore[misc]
    """Scans of values of several programs, or of one without an axis of programs."""

    def apply_impl(self, values: Any) -> Any:
        if not is_active():
            return super().apply_impl(values)
        axis = self.axis % len(values[0].shape) + 1
        arrays, kinds = [value.handle.data for value in values], [value.dtype for value in values]
        if self.reverse:
            arrays = [np.flip(array, axis) for array in arrays]
        results = self._scanned(arrays, axis, kinds)
        if self.reverse:
            results = [np.flip(array, axis) for array in results]
        return [self._tensor(array, kind) for array, kind in zip(results, kinds, strict=False)]

    def _scanned(self, arrays: list[Array], axis: int, kinds: list[Any]) -> list[Array]:
        standard = language.standard
        simple: dict[Any, Callable[..., Array]] = {
            standard._sum_combine: np.cumsum, standard._prod_combine: np.cumprod,
        }  # fmt: skip
        if (function := simple.get(self.combine_fn)) is not None:
            return [function(arrays[0], axis=axis)]
        moved = [np.moveaxis(array, axis, 0) for array in arrays]
        totals = [[each[0] for each in moved]]
        for i in range(1, len(moved[0])):
            totals.append(self._combined(totals[-1], [each[i] for each in moved], kinds))
        return [np.stack([total[j] for total in totals], axis=axis) for j in range(len(arrays))]


def scalar(tensor: Any, convert: Callable[[Any], Any]) -> Any:
    """Returns `convert` of the number in `tensor`, a scalar of the language or a block of one element.

    Raises Diverged if the results differ among the programs, and ValueError for a larger block.
    """
    data = tensor.handle.data
    if data.size == 1:
        return convert(data.item())
    if not is_active() or data.size != len(data):
        raise ValueError("only one number can be converted")
    if (data == data.flat[0]).all():
        return convert(data.flat[0].item())
    values = np.array([convert(each.item()) for each in data.flat])
    if (values == values[0]).all():
        return values[0].item()
    return diverged(values)


def diverged(values: Array) -> NoReturn:
    """Raises Diverged, or NotTogether if there was an atomic operation: a program may wait for another one then."""
    raise NotTogether if interpreter.interpreter_semantic.builder.atomics else Diverged(values)


def steps(*bounds: Any, **options: Any) -> Iterable[Any]:
    """Returns what a kernel's `range(*bounds)` iterates over: numbers, or scalars that differ among the programs.

    Raises Diverged with the numbers of iterations if these differ. `options` are those of `tl.range`, such as
    `num_stages`; those that are no bound have no effect on results.
    """
    names = dict(zip(("arg1", "arg2", "step"), bounds, strict=False), **options)
    first, last, step = names["arg1"], names.get("arg2"), names.get("step")
    parts = [0, first, 1 if step is None else step] if last is None else [first, last, 1 if step is None else step]
    data = [each.handle.data if isinstance(each, Tensor) else None for each in parts]
    if not is_active() or all(each is None or (each == each.flat[0]).all() for each in data):
        return range(*parts)
    first, last, step = np.broadcast_arrays(
        *(np.array([int(part)]) if each is None else each for part, each in zip(parts, data, strict=True))
    )
    counts = np.array([len(range(*map(int, one))) for one in zip(first, last, step, strict=True)])
    if (counts != counts[0]).any():
        diverged(counts)
    return (
        Tensor(Handle((first + i * step).astype(np.int32), language.int32), language.int32) for i in range(counts[0])
    )


def install(replace: Callable[[Any, str, Any], None]) -> None:
    """Lets the interpreter's values, reductions and scans have an axis of programs where `Programs` makes them.

    `replace` sets an attribute of a class of the language.
    """

    def transposed(tensor: Any) -> Any:
        return language.trans(tensor)

    def truth(tensor: Any) -> bool:
        count = len(tensor.handle.data) if is_active() else 1
        return scalar(tensor, bool) if tensor.handle.data.size == count else True

    class Loops(interpreter.ASTTransformer):  # type: ignore[misc]
        """Rewrites a kernel's statements as the interpreter does, and its loops over `range` to loops over `steps`."""

        def visit_For(self, node: ast.For) -> ast.AST:  # noqa: N802 - the name that `ast` calls
            called = node.iter.func if isinstance(node.iter, ast.Call) else None
            if isinstance(called, ast.Name) and called.id == "range":
                called.id = "_steps_of_programs"
            return cast(ast.AST, self.generic_visit(node))

    # The interpreter copies its module's names to those of the kernel's module.
    interpreter._steps_of_programs, interpreter.FunctionRewriter.ast_transformer = steps, Loops()
    for module in (language, language.core):
        replace(module, "range", steps)
    alone = interpreter.TensorDescHandle.materialize_pointers

    def pointers(descriptor: Any, offsets: Sequence[Any]) -> Any:
        return (_descriptor_pointers if is_active() else alone)(descriptor, offsets)

    interpreter.TensorDescHandle.materialize_pointers = pointers
    replace(language.tensor, "__index__", lambda tensor: scalar(tensor, int))
    replace(language.tensor, "__bool__", truth)
    replace(language.tensor, "T", property(transposed))
    interpreter.ReduceOps, interpreter.ScanOps = Reductions, Scans
    known = functools.cache(interpreter._get_np_dtype)  # which makes a table at each call

    def stored(kind: Any) -> np.dtype[Any]:
        found: np.dtype[Any] = np.dtype(np.uint64) if kind.scalar.is_ptr() else known(kind.scalar)
        return found

    interpreter._get_np_dtype = stored
    # Its checks of integers do nothing but take time, unless a kernel is compiled for debugging.
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
