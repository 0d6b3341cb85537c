"""What one call of a problem's reference costs, from a run on torch's device `meta`.

Tensors have shapes and no numbers there. Such a run shows whether the model accepts the values of the size constants,
and how many operations and bytes a call needs. It takes a fraction of a second at any size.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kernel_harness.problem.torch_modes import DispatchMode, FunctionMode

if TYPE_CHECKING:
    from kernel_harness.problem.problem import Problem

# The work of one call on a CPU. A verdict needs a few dozen calls, half of them in float64.
MOST_FLOPS, MOST_BYTES, MOST_OPERATORS = 2**28, 2**23, 2**12


def _formulas() -> Mapping[Any, Callable[..., int]]:
    """Returns torch's formulas for the operations of its operators.

    Their module imports triton where it is installed. That would take the judge 0.4 s, and triton 3.9 prints at the
    end of a process what its bindings have leaked. So triton is hidden meanwhile; kernels in Triton are not counted.
    """
    hidden = "triton" not in sys.modules
    if hidden:
        sys.modules["triton"] = None  # type: ignore[assignment]
    logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)  # it warns that there is no triton
    try:
        formulas: Mapping[Any, Callable[..., int]] = importlib.import_module("torch.utils.flop_counter").flop_registry
        return formulas
    finally:
        if hidden:
            del sys.modules["triton"]


_FLOPS = _formulas()


@dataclass(frozen=True)
class Cost:
    """The work of one call of a model: floating-point operations, bytes of tensors, and calls of torch's operators.

    `bytes` counts the model's inputs and the result of each operator of the call, not only the model's outputs. A
    result that shares memory with an operand is not counted.
    If `cut` is True, the model was stopped after more than MOST_OPERATORS operators, and the call does more than these.
    `samples` is the least number of elements over which a norm takes a mean; None if the model reached no norm.
    `weight_bytes` is the size of the model's parameters, which `bytes` does not contain.
    """

    flops: int
    bytes: int
    operators: int
    cut: bool = False
    samples: int | None = None
    weight_bytes: int = 0

    def share(self, most_bytes: int = MOST_BYTES) -> float:
        """Returns the largest share of MOST_FLOPS, `most_bytes` and MOST_OPERATORS: above 1, a call costs too much."""
        return max(self.flops / MOST_FLOPS, self.bytes / most_bytes, self.operators / MOST_OPERATORS)


def cost(problem: Problem) -> Cost | None:
    """Returns the cost of one call of the reference; None if the reference cannot run on `meta`, or at this size."""
    work, cut = _Work(), False
    try:
        model, given = model_on_meta(problem), inputs(problem)
        work.add(given)
        with on_meta(), work:
            problem.forward(model, given)
    except _Enough:
        cut = True
    except Exception:
        return None
    weights = model.parameters() if isinstance(model, torch.nn.Module) else ()
    return Cost(work.flops, work.bytes, work.operators, cut, work.samples, sum(each.nbytes for each in weights))


@functools.cache
def _keep_compiler_out() -> None:
    """Lets torch's own functions for the device `meta` run without an import of torch's compiler, which takes seconds.

    `torch._disable_dynamo` has wrapped some of these functions, so that the compiler does not look into them. At the
    first call its wrapper imports the compiler to mark the function, unless the function has the mark. The mark set
    here is the function itself. It has no effect in this process, which compiles none of them.
    """
    wrapper = torch._disable_dynamo(_empty).__code__
    for name, module in list(sys.modules.items()):
        if name.startswith(("torch._refs", "torch._decomp", "torch._prims")):
            for function in list(vars(module).values()):
                while isinstance(function, FunctionType) and "fn" in function.__code__.co_freevars:
                    wrapped = inspect.getclosurevars(function).nonlocals["fn"]
                    if function.__code__ is wrapper:
                        vars(wrapped).setdefault("__dynamo_disable", wrapped)
                    function = wrapped


@contextmanager
def on_meta() -> Iterator[None]:
    """Returns a context in which torch makes tensors on the device `meta`, also where the code names another device."""
    _keep_compiler_out()
    with torch.device("meta"), _ToMeta():
        yield


def inputs(problem: Problem) -> Any:
    """Returns the inputs of one call without values, on the device `meta`. Raises what get_inputs() raises there."""
    with on_meta():
        return problem.inputs(0)


def model_on_meta(problem: Problem) -> Any:
    """Returns a new reference model on the device `meta`, which draws no weights if the constructor runs there."""
    try:
        with on_meta():
            return problem.new_model()
    except Exception:  # a constructor that computes with numbers, such as the rates of dropout
        return problem.new_model().to("meta")


def count_empty_tensors(problem: Problem) -> int:
    """Returns the number of tensors without elements among the inputs and the outputs of one call of the reference.

    The outputs count only if get_inputs() and the reference run on the device `meta`. If get_inputs() fails there, the
    inputs are made on the CPU. Raises ProblemError if get_inputs() raises an exception on the CPU too.
    """
    try:
        given = inputs(problem)
    except Exception:
        return _empty(problem.inputs(0))
    outputs = None
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of a layer without elements, which the caller reports
        model = model_on_meta(problem)
        with on_meta(), _Work():
            outputs = problem.forward(model, given)
    return _empty(given) + _empty(outputs)


def _empty(values: Any) -> int:
    return sum(not each.numel() for each in _tensors(values))


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors in a nested value."""
    return (each for each in pytree.tree_leaves(values) if isinstance(each, torch.Tensor))


class _Enough(Exception):
    """The exception that stops a model after more than MOST_OPERATORS operators: it is too costly for a CPU."""


class _Work(DispatchMode):
    """Counts torch's operators, their floating-point operations, and the bytes of their results.

    The bytes of a result that shares memory with an operand (a view) are not counted. `samples` is the least number of
    elements over which a norm has taken a mean; None before the first one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.bytes = self.operators = 0
        self.samples: int | None = None

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = None if kwargs and "dtype" in kwargs else _quick(func, args)
        if result is None:
            result = func(*args, **(kwargs or {}))
        self.operators += 1
        if self.operators > MOST_OPERATORS:
            raise _Enough
        if samples := _samples(func, args):
            self.samples = samples if self.samples is None else min(samples, self.samples)
        if formula := _FLOPS.get(func._overloadpacket):
            self.flops += formula(*args, **(kwargs or {}), out_val=result)
        if not any(each.alias_info for each in func._schema.returns):
            self.add(result)
        return result

    def add(self, values: Any) -> None:
        """Adds the bytes of all tensors in a nested value."""
        self.bytes += sum(each.numel() * each.element_size() for each in _tensors(values))


def _samples(func: Any, args: tuple[Any, ...]) -> int:
    """Returns over how many elements a norm takes each mean; 0 for another operator.

    BatchNorm takes means of its input in training only. InstanceNorm is BatchNorm of another view.
    """
    aten = torch.ops.aten
    if func is aten.native_batch_norm.default and args[5]:
        return int(args[0].numel() // args[0].shape[1])
    if func is aten.native_group_norm.default:
        _, _, _, _, channels, pixels, groups, _ = args
        return int(channels * pixels // groups)
    return math.prod(args[1]) if func is aten.native_layer_norm.default else 0


# Operators whose result has the shape and the type of their first argument, if that is a floating-point tensor. Those
# of two arguments have them if the second is a number, or a tensor that fits. With an underscore at the end of their
# name, they change the first argument.
_OF_ONE = frozenset(
    ("abs", "elu", "exp", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log", "mish", "neg", "relu",
     "sigmoid", "silu", "softplus", "sqrt", "tanh")
)  # fmt: skip
_OF_TWO = frozenset(("add", "sub", "mul", "div", "pow"))


def _quick(func: Any, args: tuple[Any, ...]) -> Any:
    """Returns the result of some operators on the device `meta` without running them; None for other operators.

    Also returns None for unusual arguments. On this device, torch runs these operators as Python functions that take up
    to 1.5 ms, and a network has hundreds of them. The first of these functions that runs imports sympy (0.6 s).
    """
    aten, first = torch.ops.aten, args[0] if args else None
    if not isinstance(first, torch.Tensor) or first.device.type != "meta" or not first.is_floating_point():
        return None
    if func is aten.native_batch_norm.default and first.ndim > 1 and _of_length(first.shape[1], args[1:5]):
        of_channel = _of_shape(first, (first.shape[1],))
        return _like(first), of_channel, of_channel
    if func is aten.native_group_norm.default and first.ndim > 1:
        _, weight, bias, batch, channels, _, groups, _ = args
        if first.shape[:2] == (batch, channels) and _of_length(channels, (weight, bias)) and channels % groups == 0:
            of_group = _of_shape(first, (batch, groups))
            return _like(first), of_group, of_group
    if func is aten.mean.dim and (kept := _without(first.shape, *args[1:])) is not None:
        return _of_shape(first, kept)
    if func is aten._softmax.default and args[2] is False and first.ndim and -first.ndim <= args[1] < first.ndim:
        return _like(first)
    if func is aten.addmm.default:
        (rows, inner), (same, columns) = args[1].shape, args[2].shape
        fits = inner == same and first.shape in ((columns,), (rows, columns))
        if fits and first.dtype == args[1].dtype == args[2].dtype:
            return _of_shape(first, (rows, columns))
    name = func._overloadpacket.__name__
    kind = name.removesuffix("_")
    bounded = func in (aten.clamp.default, aten.clamp_min.default) and any(bound is not None for bound in args[1:])
    if bounded or kind in _OF_ONE or (kind in _OF_TWO and _fits(args[1], first)):
        return _like(first) if name == kind else first
    return None


def _without(shape: Sequence[int], reduced: Sequence[int] | None, keep: bool = False) -> list[int] | None:
    """Returns `shape` after a reduction; None if `reduced` is empty or has a dimension twice or a missing one."""
    if not reduced or any(not -len(shape) <= dim < len(shape) for dim in reduced):
        return None
    gone = {dim % len(shape) for dim in reduced}
    if len(gone) < len(reduced):
        return None
    return [1 if dim in gone else size for dim, size in enumerate(shape) if keep or dim not in gone]


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a new tensor like `tensor`. Both are on the device `meta`, where a tensor holds no numbers.

    `torch.empty_like` is called only if `tensor` is not contiguous, because on `meta` it imports sympy.
    """
    return _of_shape(tensor, tensor.shape) if tensor.is_contiguous() else torch.empty_like(tensor)


def _of_shape(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    return torch.empty(shape, dtype=like.dtype, device="meta")


def _fits(other: Any, first: torch.Tensor) -> bool:
    """Returns whether an operator of `first` and `other` gives a result with the shape and dtype of `first`."""
    if not isinstance(other, torch.Tensor):
        return isinstance(other, (int, float))
    if not (first.is_contiguous() and other.is_contiguous() and first.dtype == other.dtype):
        return False
    # `torch.broadcast_shapes` imports sympy.
    pairs = zip(reversed(other.shape), reversed(first.shape), strict=False)
    return other.ndim <= first.ndim and all(theirs in (1, own) for theirs, own in pairs)


def _of_length(length: int, tensors: Iterable[torch.Tensor | None]) -> bool:
    return all(tensor is None or tensor.shape == (length,) for tensor in tensors)


class _ToMeta(FunctionMode):
    """Within this context, torch's functions use the device `meta` in place of a device that a caller names."""

    def result_of(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Calls `func` with `meta` in place of each device among its arguments. Skips Tensor.cuda and Tensor.cpu."""
        if func in (torch.Tensor.cuda, torch.Tensor.cpu):
            return args[0]
        return func(*map(_on_meta, args), **{name: _on_meta(value) for name, value in kwargs.items()})


def _on_meta(argument: Any) -> Any:
    if isinstance(argument, torch.device) or (isinstance(argument, str) and argument.split(":")[0] in ("cuda", "cpu")):
        return torch.device("meta")
    return argument
