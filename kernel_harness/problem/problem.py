"""Loads a problem file, which holds the reference model, its inputs, and its numbers of operations and bytes.

A problem's shape is the values of its size constants (`M`, `N`, ...), which the caller can replace. The module runs no
candidate.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import logging
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import torch

from kernel_harness.core.precision import Tolerance, default_tolerance
from kernel_harness.problem import constants, meta, sizing
from kernel_harness.problem.constants import Constant
from kernel_harness.problem.cuda_to_cpu import cuda_replaced
from kernel_harness.problem.distributions import OWN, VARIATIONS, redrawn, shifted
from kernel_harness.problem.drawn_models import DrawnModels
from kernel_harness.problem.errors import ProblemError, place_of
from kernel_harness.problem.generators import seeded
from kernel_harness.problem.lookalikes import LOOKALIKES, lookalikes
from kernel_harness.problem.made_on_cuda import MadeOnCuda, as_on_the_device, laid_out_as
from kernel_harness.problem.spelling import check_spelling
from kernel_harness.problem.varied_parameters import is_constant, trained_parameters, varied

_LOG = logging.getLogger(__name__)

# The value of each constant that a shape sets, such as M, K and N, or `shape[0]` for an element of a tuple.
Shape = Mapping[str, int]
# KernelBench sets this seed before it builds Model and before it builds ModelNew, so that both get the same weights.
WEIGHT_SEED = 42
# This seed is set before each forward of the reference and of the candidate, so that dropout draws the same numbers.
FORWARD_SEED = 42
_LARGE_WEIGHT_BYTES = 1 << 28


def shape_text(shape: Shape) -> str:
    """Returns the values of the size constants as text for the option `--shape`, such as `M=64,K=128,N=96`."""
    return ",".join(f"{name}={value}" for name, value in shape.items())


def differing(shapes: Collection[Shape]) -> list[str]:
    """Returns the names of the size constants that do not have the same value in all of the shapes, in their order."""
    names = dict.fromkeys(name for shape in shapes for name in shape)
    return [name for name in names if len({shape.get(name) for shape in shapes}) > 1]


@dataclass(frozen=True)
class Problem:
    """A problem file, loaded with given values of its size constants (`M`, `N`, ...).

    `source` is the file's text. `shape` has the values of the constants that the caller has set, and of those that the
    file sets to whole numbers without reference to other constants. `text` is `source` with the values that the caller
    has set, and `module` is the executed `text`. Such a `text` is made from the syntax tree, so it has no comments.
    `emulated` is true if the candidate's device is emulated: the problem's code then runs on the CPU, even where it
    asks for CUDA. The code runs in the judge, which restores the states of torch's random generators after each use.
    `parameter_seed` is the seed of random parameters (`with_random_parameters`); if it is None, the model draws its
    weights from WEIGHT_SEED. `made_on_cuda` holds the tensors that the file's own code has put on a CUDA device, and
    `drawn_models` the models whose weights took long to draw.
    """

    name: str
    path: Path
    source: str
    shape: Shape
    text: str
    module: ModuleType
    emulated: bool = False
    parameter_seed: int | None = None
    made_on_cuda: MadeOnCuda = field(default_factory=MadeOnCuda, compare=False, repr=False)
    drawn_models: DrawnModels = field(default_factory=DrawnModels, compare=False, repr=False)

    def at(self, shape: Mapping[str, Any]) -> Problem:
        """Returns the problem with the size constants in `shape` replaced. The other constants keep their values.

        Values that the file computes from the constants change as well. `shape` maps the name of a constant to its new
        value. For a constant that is a tuple or a list in the file, the key is its name and the value a tuple, or the
        key is one element, such as `NAME[0]`, and the value a number. Raises ProblemError for an unknown constant, for
        a tuple with another number of elements than in the file, and if the file cannot be executed with these values.
        """
        if {**self.shape, **shape} == dict(self.shape):
            return self
        there = _execute(self.name, self.path, self.source, {**self.shape, **shape}, emulated=self.emulated)
        return replace(there, parameter_seed=self.parameter_seed)

    def on(self, *, emulated: bool) -> Problem:
        """Returns the problem for a device: at sizes for a CPU if the device is emulated, else unchanged.

        The sizes for a CPU are the file's CPU_SHAPE. If the file has none, `sizing.fitted` chooses them. Raises
        ProblemError if the device is emulated and the file uses torch.autocast.
        """
        if not emulated:
            return self
        here = self._for_emulation()
        return here.at(self.cpu_shape if self.states("CPU_SHAPE") else sizing.fitted(here))

    def sized(self, shape: Mapping[str, Any] | None, *, emulated: bool) -> Problem:
        """Returns the problem for a device, with the size constants in `shape` replaced.

        Constants that are missing in `shape`, and all constants for `{}`, get the device's usual sizes (`on`). `shape`
        None keeps the sizes of this problem. Raises ProblemError for an unknown constant, and if the device is emulated
        and the file uses torch.autocast.
        """
        here = self._for_emulation() if emulated else replace(self, emulated=False)
        if shape is None:
            return here
        return here.at(shape) if self.shape.keys() <= shape.keys() else self.on(emulated=emulated).at(shape)

    def _for_emulation(self) -> Problem:
        for node in ast.walk(ast.parse(self.source)):
            if "autocast" in (getattr(node, "attr", ""), getattr(node, "id", "")):
                raise ProblemError(
                    f"{self.path}:{getattr(node, 'lineno', 1)}: torch.autocast has other rules for CUDA than for the "
                    "CPU, so a reference that uses it can be judged on a GPU only"
                )
        return replace(self, emulated=True)

    @cached_property
    def in_file(self) -> Problem:
        """Returns the problem at the sizes that its file sets."""
        return _execute(self.name, self.path, self.source, {}, emulated=self.emulated)

    def with_random_parameters(self, seed: int) -> Problem:
        """Returns the problem with weights from `seed`, in which no parameter is one number everywhere (`varied`)."""
        return replace(self, parameter_seed=seed)

    @property
    def title(self) -> str:
        """Returns the first line of the docstring of the problem's file, or an empty text."""
        return (self.module.__doc__ or "").strip().split("\n")[0]

    @property
    def cpu_shape(self) -> Shape:
        """Returns the file's CPU_SHAPE, values of size constants for the emulated device; empty if it has none."""
        return self._by_element(getattr(self.module, "CPU_SHAPE", {}))

    @property
    def check_shapes(self) -> list[Shape]:
        """Returns the file's CHECK_SHAPES, further values of size constants for checks; empty if it has none."""
        return self._listed("CHECK_SHAPES")

    @property
    def time_shapes(self) -> list[Shape]:
        """Returns the file's TIME_SHAPES, further values of size constants for timing; empty if it has none."""
        return self._listed("TIME_SHAPES")

    def _listed(self, name: str) -> list[Shape]:
        shapes = getattr(self.module, name, [])
        if not isinstance(shapes, (list, tuple)) or not all(isinstance(shape, Mapping) for shape in shapes):
            raise ProblemError(f"{self.path}: {name} must be a list such as [dict(M=64), dict(M=128)]")
        return [self._by_element(shape) for shape in shapes]

    def states(self, name: str) -> bool:
        """Returns whether the problem file has `name`, such as CHECK_SHAPES, STRESS or error_scale."""
        return hasattr(self.module, name)

    def _by_element(self, shape: Mapping[str, Any]) -> Shape:
        return _spread(self.path, shape, self._constants)

    @cached_property
    def _constants(self) -> list[Constant]:
        return constants.find(ast.parse(self.source))

    @property
    def stress(self) -> dict[str, dict[str, Any]]:
        """Returns the parameters of further input distributions, by name: the file's STRESS, or `VARIATIONS`."""
        return dict(getattr(self.module, "STRESS", VARIATIONS))

    def tolerance(self, dtype: torch.dtype) -> Tolerance:
        """Returns the problem file's TOLERANCE, or the default tolerance of `dtype` if the file has none."""
        own = getattr(self.module, "TOLERANCE", None)
        return Tolerance(**own) if own else default_tolerance(dtype)

    def inputs(self, seed: int, distribution: str = OWN, device: str = "cpu") -> Any:
        """Returns the inputs of one call: the result of the problem's get_inputs(), drawn with `seed`.

        While get_inputs() runs, `device` is torch's default device. If get_inputs() fails with a GPU as the default
        device, it runs with the CPU, then and in later calls. The inputs have the strides, offsets and shared storages
        that they have where KernelBench has moved them to the device (`as_on_the_device`). For a distribution other
        than "own", each floating-point tensor in the list of inputs is replaced: by a tensor drawn from this
        distribution if the problem file has STRESS, otherwise by one computed from its own numbers (`shifted`). The
        distributions of `lookalikes` change a few numbers, for any problem.
        Raises ProblemError if get_inputs() raises an exception. Only torch.OutOfMemoryError is raised as it is.
        """
        try:
            inputs = as_on_the_device(self._drawn(seed, device), self.made_on_cuda)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            where = f"{place_of(error, self.path)}: get_inputs() at {shape_text(self.shape) or 'its size'}"
            raise ProblemError(f"{where}: {type(error).__name__}: {error}") from error
        if distribution == OWN:
            return inputs
        generator = cache(lambda device: torch.Generator(device).manual_seed(seed))
        if distribution in LOOKALIKES:
            return laid_out_as(inputs, lookalikes(inputs, distribution, generator("cpu")))
        parameters = self.stress[distribution]
        change = redrawn if self.states("STRESS") else shifted
        return laid_out_as(inputs, [change(value, distribution, parameters, generator) for value in inputs])

    def check_inputs(self) -> None:
        """Raises ProblemError if this shape cannot be judged. A run checks this before it builds anything.

        A shape cannot be judged if get_inputs() raises an exception, or if a size of 0 leaves more inputs and outputs
        without elements than any shape in the problem file: a right kernel may then fail, because CUDA refuses a
        launch without blocks. Inputs are drawn on torch's device `meta`, which needs no memory, if that is possible.
        """
        if 0 not in self.shape.values():
            with suppress(Exception), meta.on_meta():
                self.inputs(0)
                return
            self.inputs(0)
            return
        empty = meta.count_empty_tensors(self)
        file = self.in_file
        named = [file, *(file.at(shape) for shape in (file.cpu_shape, *file.check_shapes))]
        if empty > max(map(meta.count_empty_tensors, named)):
            where = f"{self.path}: at {shape_text(self.shape)}"
            raise ProblemError(f"{where}, an input or an output has no elements, so there is nothing to judge")

    def _drawn(self, seed: int, device: str) -> Any:
        if device not in {"cpu", *self._fails_on}:
            try:
                with self._running(seed, cuda=True), torch.device(device), self._noting():
                    return self.module.get_inputs()
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                _LOG.info("%s: get_inputs() runs on the CPU, because it fails on %s: %s", self.path, device, error)
                self._fails_on.add(device)
        with self._running(seed), self._noting():
            return self.module.get_inputs()

    def _noting(self) -> AbstractContextManager[Any]:
        """Returns the context for get_inputs() that notes which tensors the file's own code puts on a CUDA device."""
        return self.made_on_cuda if "cuda" in self.source else nullcontext()

    @cached_property
    def _fails_on(self) -> set[str]:
        """The names of devices on which get_inputs() has failed. The CPU is the default device in their place."""
        return set()

    @property
    def weight_seed(self) -> int:
        """Returns the seed from which the constructors of the reference and of a candidate draw their weights."""
        return WEIGHT_SEED if self.parameter_seed is None else self.parameter_seed

    def init_inputs(self) -> Any:
        """Returns the arguments of the model's constructor: the result of get_init_inputs(), or [] without it."""
        with self._running(WEIGHT_SEED):
            return getattr(self.module, "get_init_inputs", list)()

    def constructor_arguments(self, file: str) -> Any:
        """Returns the arguments of the constructor of the model in a candidate's `file`.

        For a Python file these are the arguments of the reference's constructor. The model of a `.cu` file has no code
        that could draw weights. Its one argument is a dict of the reference's parameters and buffers, by name and in
        the order of the reference's state dict.
        """
        if not file.endswith(".cu"):
            return self.init_inputs()
        return [self.state()]

    def state(self) -> dict[str, torch.Tensor]:
        """Returns the parameters and buffers in the reference's state dict, by name, in its order and on the CPU.

        They must not be changed: other models are copied from them.
        """
        state: dict[str, Any] = getattr(self._drawn_model()[0], "state_dict", dict)()
        return {name: value.detach() for name, value in state.items() if isinstance(value, torch.Tensor)}

    @cached_property
    def _undrawn_model(self) -> Any:
        """The reference model on the device `meta`; None if it cannot be built, which the first check reports."""
        with suppress(Exception):
            return meta.model_on_meta(self)
        return None

    @cached_property
    def parameters(self) -> frozenset[str]:
        """Returns the names of the reference's floating-point parameters; empty if the reference cannot be built."""
        return frozenset(name for name, _ in trained_parameters(self._undrawn_model))

    @property
    def state_names(self) -> Sequence[str]:
        """Returns the names in the reference's state dict, in its order; empty if the reference cannot be built."""
        return tuple(getattr(self._undrawn_model, "state_dict", dict)())

    @property
    def has_large_weights(self) -> bool:
        """Returns whether the constructor of the reference draws weights for a second or so (_LARGE_WEIGHT_BYTES)."""
        nbytes: int = sum(each.nbytes for _, each in trained_parameters(self._undrawn_model))
        return nbytes >= _LARGE_WEIGHT_BYTES

    @cached_property
    def neutral_state(self) -> dict[str, float]:
        """Returns the parameters and buffers of the reference that have one value everywhere, by name, with that value.

        A norm's weight and bias start like this. A kernel that ignores them gives the right answer. Of tensors with
        values other than 0 and 1, only parameters of several elements count: one element may be drawn at random.
        """
        found = {}
        for name, value in self.state().items():
            if value.is_floating_point() and value.numel() and is_constant(value):
                first = value.flatten()[0].item()
                if first in (0, 1) or (value.numel() > 1 and name in self.parameters):
                    found[name] = first
        return found

    def model(self, device: str) -> Any:
        """Returns a reference model on `device` that nothing else changes.

        Its constructor draws the weights from the same seed as the constructor of the candidate.
        """
        model, is_kept = self._drawn_model()
        with torch.no_grad():
            if is_kept:
                return self.drawn_models.copy(model, device)
            # A move to the CPU changes nothing there, and fails on fake tensors that something else still refers to.
            return model if device == "cpu" else model.to(device)

    def draw_ahead(self) -> None:
        """Begins to draw the weights of the reference in another thread if they are large. A later `model` waits."""

        def draw() -> None:
            with suppress(Exception):  # `model` raises it again
                self._drawn_model()

        if self.has_large_weights:
            threading.Thread(target=draw, daemon=True).start()

    def _drawn_model(self) -> tuple[Any, bool]:
        with self._running(self.weight_seed):  # one thread draws, and others wait for its model
            return self.drawn_models.get((self.parameter_seed, self.emulated), self.new_model)

    def new_model(self) -> Any:
        """Returns a new reference model on torch's default device, whose weights are drawn from the model's seed."""
        init, seed = self.init_inputs(), self.parameter_seed
        with self._running(self.weight_seed), torch.no_grad(), nullcontext() if seed is None else varied(seed):
            return self.module.Model(*init)

    @property
    def input_names(self) -> list[str]:
        """Returns the names of the parameters of the model's `forward`, in order. Builds no model where it need not."""
        of_class = getattr(self.module.Model, "forward", None)
        parameters = inspect.signature(of_class or self.model("cpu").forward).parameters.values()
        names = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        return names[1:] if of_class else names

    def forward(self, model: Any, inputs: Any) -> Any:
        """Returns the outputs of `model`, the reference, without gradients.

        The random generators start from the same seed as for the candidate, so that dropout draws the same numbers.
        """
        with self._running(FORWARD_SEED), torch.no_grad():
            return model(*inputs)

    def number(self, name: str) -> float | None:
        """Returns the number that the problem file's function `name` computes, or None without such a function.

        `name` is `flops`, `bytes_moved`, `min_flops` or `min_bytes`.
        """
        function = getattr(self.module, name, None)
        return None if function is None else float(function())

    def error_scale(self, inputs: Any) -> Any:
        """Returns the magnitude that the rounding error of each output element is relative to.

        The problem file's function `error_scale` computes it from `inputs`: one tensor for each output, which
        broadcasts to the output's shape. Raises AttributeError without this function.
        """
        with self._running(FORWARD_SEED):
            return self.module.error_scale(*inputs)

    @contextmanager
    def _running(self, seed: int, *, cuda: bool = False) -> Iterator[None]:
        """Returns the context in which the problem's functions run. Torch's random generators start from `seed` there.

        If the candidate's device is emulated or there is no CUDA device, the CPU replaces CUDA for a problem whose
        source contains "cuda". Otherwise, CUDA is initialised first if `cuda` is true or the problem's source contains
        "cuda".
        """
        to_cpu = cuda_replaced(self.source, emulated=self.emulated)
        cuda = (cuda or "cuda" in self.source) and torch.cuda.is_available() and not self.emulated
        with seeded(seed, cuda=cuda), to_cpu:
            yield


def load(name: str, path: Path) -> Problem:
    """Returns the problem in the file `path`, named `name`, with its size constants as the file sets them.

    Raises ProblemError if the file cannot be read or executed, if it lacks Model or get_inputs, or if it defines a name
    that is probably a misspelling (`check_spelling`).
    """
    try:
        source = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ProblemError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path} is not UTF-8 text: {error}") from None
    return _execute(name, path, source, {}, emulated=False)


def _spread(path: Path, shape: Mapping[str, Any], found: Sequence[Constant]) -> dict[str, Any]:
    try:
        return constants.spread(shape, found)
    except ValueError as error:
        raise ProblemError(f"{path}: {error}") from None


def _execute(name: str, path: Path, source: str, shape: Shape, *, emulated: bool) -> Problem:
    try:
        tree = ast.parse(source, str(path))
    except SyntaxError as error:
        raise ProblemError(f"{path}:{error.lineno}: {error.msg}") from None
    except ValueError as error:  # Python before 3.11.4 raises ValueError for a null byte
        raise ProblemError(f"{path}: {error}") from None
    found = constants.find(tree)
    names = list(dict.fromkeys(constant.name for constant in found))
    shape = _spread(path, shape, found)
    for wanted in shape:
        if wanted not in names:
            close = difflib.get_close_matches(wanted, names, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; the file has {', '.join(names) or 'none'}"
            raise ProblemError(f"{path} has no constant {wanted}{hint}")
    constants.replace(found, shape)
    module, made = ModuleType(f"problem_{name}"), MadeOnCuda()
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        with seeded(WEIGHT_SEED), cuda_replaced(source, emulated=emulated), made if "cuda" in source else nullcontext():
            exec(compile(tree, str(path), "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        raise ProblemError(f"{place_of(error, path)}: {type(error).__name__}: {error}") from error
    check_spelling(path, tree)
    for required in ("Model", "get_inputs"):
        if not hasattr(module, required):
            raise ProblemError(f"{path} defines no {required}; a problem needs Model and get_inputs")
    recorded = (constant.name for constant in found if constant.name in shape or constant.independent)
    values = {name: constants.value(vars(module), name) for name in recorded}
    numbers = {n: v for n, v in values.items() if isinstance(v, int) and not isinstance(v, bool)}
    text = ast.unparse(tree) if shape else source
    return Problem(name, path, source, MappingProxyType(numbers), text, module, emulated, made_on_cuda=made)
