"""Loads a problem file, which holds the reference model, its inputs, and its numbers of operations and bytes.

A problem's shape is the values of its size constants (`M`, `N`, ...), which the caller can replace. The module runs no
candidate.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import torch

from kernel_harness.core.errors import UserError
from kernel_harness.core.precision import Tolerance, default_tolerance
from kernel_harness.problem import constants, sizing
from kernel_harness.problem.constants import Constant
from kernel_harness.problem.cuda_to_cpu import CudaToCpu
from kernel_harness.problem.generators import seeded
from kernel_harness.problem.lookalikes import LOOKALIKES, is_measured, lookalikes
from kernel_harness.problem.made_on_cuda import MadeOnCuda, as_on_the_device, laid_out_as
from kernel_harness.problem.varied_parameters import varied

_LOG = logging.getLogger(__name__)

OWN = "own"
"""The name of the distribution from which the problem's own get_inputs() draws."""
PARAMETERS = "parameters"
"""The name of the case in which the parameters of the model are random. Its inputs are the problem's own."""
SMALL = "small"
"""The name of the distribution of small numbers. It shows the constants that are added to them, as in a norm."""
SPARSE = "sparse"
"""The name of the distribution in which most numbers are zero. It shows which numbers a sum of very many leaves out."""

# The value of each constant that a shape sets, such as M, K and N, or `shape[0]` for an element of a tuple.
Shape = Mapping[str, int]
# Returns the random generator of a device, which is the same at each call.
_GeneratorOf = Callable[[torch.device], torch.Generator]

# The distributions for a problem file without STRESS. They change the values that get_inputs() draws, and keep whatever
# structure these have (`_varied`).
_VARIATIONS: Mapping[str, Mapping[str, Any]] = {
    "normal": {}, "scaled": {"log2": 4}, SMALL: {"log2": -4}, SPARSE: {},
}  # fmt: skip
# Of a sparse tensor, the first and the last _ENDS numbers are kept, and _WITHIN between them.
_ENDS, _WITHIN = 4, 56
# The elements of a tensor that are converted to float64 at a time.
_PART = 1 << 26
# Not zero: the mean of all inputs, which a model may compute, would then be rounding error.
_MEAN = 1 / 16

# KernelBench sets this seed before it builds Model and before it builds ModelNew, so that both get the same weights.
WEIGHT_SEED = 42
# This seed is set before each forward of the reference and of the candidate, so that dropout draws the same numbers.
FORWARD_SEED = 42


# The names of a problem file that mean something to the harness. All but the first two are optional.
_KNOWN = (
    "Model", "get_inputs", "get_init_inputs", "CHECK_SHAPES", "CPU_SHAPE", "TOLERANCE", "STRESS", "flops",
    "bytes_moved", "min_flops", "min_bytes", "error_scale",
)  # fmt: skip


class ProblemError(UserError):
    """The error raised if a problem file cannot be used. The message names the file and the cause."""


def shape_text(shape: Shape) -> str:
    """Returns the values of the size constants as text for the option `--shape`, such as `M=64,K=128,N=96`."""
    return ",".join(f"{name}={value}" for name, value in shape.items())


@dataclass(frozen=True)
class Problem:
    """A problem file, loaded with given values of its size constants (`M`, `N`, ...).

    `source` is the file's text. `shape` has the values of the constants that the caller has set, and of those that the
    file sets to whole numbers without reference to other constants. `text` is `source` with the values that the caller
    has set, and `module` is the executed `text`. Such a `text` is made from the syntax tree, so it has no comments.
    `emulated` is true if the candidate's device is emulated: the problem's code then runs on the CPU, even where it
    asks for CUDA. The code runs in the judge, which restores the states of torch's random generators after each use.
    `parameter_seed` is the seed of random parameters (`with_random_parameters`); if it is None, the model draws its
    weights from WEIGHT_SEED. `made_on_cuda` holds the tensors that the file's own code has put on a CUDA device.
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

    def at(self, shape: Mapping[str, Any]) -> Problem:
        """Returns the problem with the size constants in `shape` replaced. The other constants keep their values.

        Values that the file computes from the constants change as well. `shape` maps the name of a constant to its new
        value. For a constant that is a tuple or a list in the file, the key is its name and the value a tuple, or the
        key is one element, such as `NAME[0]`, and the value a number. Raises ProblemError for an unknown constant, for
        a tuple with another number of elements than in the file, and if the file cannot be executed with these values.
        """
        if not shape:
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
        here = self._emulated()
        return here.at(self.cpu_shape if hasattr(self.module, "CPU_SHAPE") else sizing.fitted(here))

    def sized(self, shape: Mapping[str, Any] | None, *, emulated: bool) -> Problem:
        """Returns the problem for a device, with the size constants in `shape` replaced.

        Constants that are missing in `shape`, and all constants for `{}`, get the device's usual sizes (`on`). `shape`
        None keeps the sizes of this problem. Raises ProblemError for an unknown constant, and if the device is emulated
        and the file uses torch.autocast.
        """
        here = self._emulated() if emulated else replace(self, emulated=False)
        if shape is None:
            return here
        return here.at(shape) if self.shape.keys() <= shape.keys() else self.on(emulated=emulated).at(shape)

    def _emulated(self) -> Problem:
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
    def cpu_shape(self) -> Shape:
        """Returns the file's CPU_SHAPE, values of size constants for the emulated device; empty if it has none."""
        return self._by_element(getattr(self.module, "CPU_SHAPE", {}))

    @property
    def check_shapes(self) -> list[Shape]:
        """Returns the file's CHECK_SHAPES, further values of size constants for checks; empty if it has none."""
        return [self._by_element(shape) for shape in getattr(self.module, "CHECK_SHAPES", [])]

    @property
    def states_shapes(self) -> bool:
        """Returns whether the problem file has CHECK_SHAPES, a list of shapes to check."""
        return hasattr(self.module, "CHECK_SHAPES")

    def _by_element(self, shape: Mapping[str, Any]) -> Shape:
        return _spread(self.path, shape, self._constants)

    @cached_property
    def _constants(self) -> list[Constant]:
        return constants.find(ast.parse(self.source))

    @property
    def stress(self) -> dict[str, dict[str, Any]]:
        """Returns the parameters of further input distributions, by name: the file's STRESS, or `_VARIATIONS`."""
        return dict(getattr(self.module, "STRESS", _VARIATIONS))

    @property
    def states_stress(self) -> bool:
        """Returns whether the problem file has STRESS, the further distributions of its inputs."""
        return hasattr(self.module, "STRESS")

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
        distribution if the problem file has STRESS, otherwise by one computed from its own numbers (`_varied`). The
        distributions of `lookalikes` change a few numbers, for any problem.
        Raises ProblemError if get_inputs() raises an exception. Only torch.OutOfMemoryError is raised as it is.
        """
        try:
            inputs = as_on_the_device(self._drawn(seed, device), self.made_on_cuda)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            where = f"{self.path}: get_inputs() at {shape_text(self.shape)}"
            raise ProblemError(f"{where}: {type(error).__name__}: {error}") from error
        if distribution == OWN:
            return inputs
        generator = cache(lambda device: torch.Generator(device).manual_seed(seed))
        if distribution in LOOKALIKES:
            return laid_out_as(inputs, lookalikes(inputs, distribution, generator("cpu")))
        parameters = self.stress[distribution]
        change = _redraw if self.states_stress else _varied
        return laid_out_as(inputs, [change(value, distribution, parameters, generator) for value in inputs])

    def check_inputs(self) -> None:
        """Raises ProblemError if this shape cannot be judged. A run checks this before it builds anything.

        A shape cannot be judged if get_inputs() raises an exception, or if a size of 0 leaves more inputs and outputs
        without elements than any shape in the problem file: a right kernel may then fail, because CUDA refuses a
        launch without blocks. Inputs are drawn on torch's device `meta`, which needs no memory, if that is possible.
        """
        if 0 not in self.shape.values():
            with suppress(Exception), sizing.on_meta():
                self.inputs(0)
                return
            self.inputs(0)
            return
        empty = sizing.empty_tensors(self)
        file = self.in_file
        named = [file, *(file.at(shape) for shape in (file.cpu_shape, *file.check_shapes))]
        if empty > max(map(sizing.empty_tensors, named)):
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
        """Returns the parameters and buffers in the reference's state dict, by name, in its order and on the CPU."""
        state: dict[str, Any] = getattr(self.model("cpu"), "state_dict", dict)()
        return {name: value.detach() for name, value in state.items() if isinstance(value, torch.Tensor)}

    @cached_property
    def parameters(self) -> frozenset[str]:
        """Returns the names of the reference's floating-point parameters; empty if the reference cannot be built."""
        try:
            return frozenset(name for name, _ in _parameters(self.model("cpu")))
        except Exception:  # the first check that needs the model reports it
            return frozenset()

    @cached_property
    def neutral_state(self) -> dict[str, float]:
        """Returns the parameters and buffers of the reference that have one value everywhere, by name, with that value.

        A norm's weight and bias start like this. A kernel that ignores them gives the right answer. Of tensors with
        values other than 0 and 1, only parameters of several elements count: one element may be drawn at random.
        """
        found = {}
        for name, value in self.state().items():
            if value.is_floating_point() and value.numel() and _is_constant(value):
                first = value.flatten()[0].item()
                if first in (0, 1) or (value.numel() > 1 and name in self.parameters):
                    found[name] = first
        return found

    def model(self, device: str) -> Any:
        """Returns a new reference model on `device`.

        Its constructor draws the weights from the same seed as the constructor of the candidate.
        """
        init, seed = self.init_inputs(), self.parameter_seed
        with self._running(self.weight_seed), torch.no_grad():
            with nullcontext() if seed is None else varied(seed):
                model = self.module.Model(*init)
            # A move to the CPU changes nothing there, and fails on fake tensors that something else still refers to.
            return model if device == "cpu" else model.to(device)

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

    @property
    def states_error_scale(self) -> bool:
        """Returns whether the problem file has the function `error_scale`."""
        return hasattr(self.module, "error_scale")

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
        to_cpu = _cuda_to_cpu(self.source, emulated=self.emulated)
        cuda = (cuda or "cuda" in self.source) and torch.cuda.is_available() and not self.emulated
        with seeded(seed, cuda=cuda), to_cpu:
            yield


def load(name: str, path: Path) -> Problem:
    """Returns the problem in the file `path`, named `name`, with its size constants as the file sets them.

    Raises ProblemError if the file cannot be read or executed, if it lacks Model or get_inputs, or if it defines a name
    that is probably a misspelling (`_check_spelling`).
    """
    try:
        source = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProblemError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path} is not UTF-8 text: {error}") from None
    return _execute(name, path, source, {}, emulated=False)


def _cuda_to_cpu(source: str, *, emulated: bool) -> AbstractContextManager[Any]:
    """Returns a context in which the CPU replaces CUDA, if the device is emulated or there is no CUDA device.

    For a problem whose source does not contain "cuda", the context does nothing, because torch avoids the fused path of
    some layers within CudaToCpu.
    """
    needed = "cuda" in source and (emulated or not torch.cuda.is_available())
    return CudaToCpu() if needed else nullcontext()


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
        with seeded(WEIGHT_SEED), _cuda_to_cpu(source, emulated=emulated), made if "cuda" in source else nullcontext():
            exec(compile(tree, str(path), "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        raise ProblemError(f"{path}: {type(error).__name__}: {error}") from error
    _check_spelling(path, tree)
    for required in ("Model", "get_inputs"):
        if not hasattr(module, required):
            raise ProblemError(f"{path} defines no {required}; a problem needs Model and get_inputs")
    recorded = (constant.name for constant in found if constant.name in shape or constant.independent)
    values = {name: constants.value(vars(module), name) for name in recorded}
    numbers = {n: v for n, v in values.items() if isinstance(v, int) and not isinstance(v, bool)}
    text = ast.unparse(tree) if shape else source
    return Problem(name, path, source, MappingProxyType(numbers), text, module, emulated, made_on_cuda=made)


def _check_spelling(path: Path, tree: ast.Module) -> None:
    """Raises ProblemError if a name in the file is similar to one of _KNOWN that the file does not define.

    Such a name is probably a misspelling. Without the error, it would silently have no effect.
    """
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    lines = {target.id: target.lineno for target in targets if isinstance(target, ast.Name)}
    lines |= {node.name: node.lineno for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for name in lines.keys() - set(_KNOWN):
        close = difflib.get_close_matches(name, set(_KNOWN) - lines.keys(), n=1, cutoff=0.85)
        if close:
            raise ProblemError(
                f"{path}:{lines[name]}: {name} means nothing to the harness; did you mean {close[0]}? If not, give it "
                "another name"
            )


def _redraw(value: Any, distribution: str, parameters: Mapping[str, Any], generator: _GeneratorOf) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    shape, dtype, drawn = (
        tuple(value.shape),
        value.dtype,
        {"generator": generator(value.device), "device": value.device},
    )
    if distribution == "integers":
        limit = int(parameters["limit"])
        return torch.randint(-limit, limit + 1, shape, **drawn).to(dtype)
    normal = torch.randn(shape, **drawn)
    if distribution == "scaled":
        reach = int(parameters["log2_range"])
        for dim, size in enumerate(shape):
            powers = torch.randint(-reach, reach + 1, (size,), **drawn)
            extents = [size if d == dim else 1 for d in range(len(shape))]
            normal = normal * torch.exp2(powers / math.sqrt(len(shape))).reshape(extents)
    return normal.to(dtype)


def _varied(value: Any, distribution: str, parameters: Mapping[str, Any], generator: _GeneratorOf) -> Any:
    """Returns a tensor with the numbers of `value`, changed as `distribution` says.

    "normal": the numbers are shifted to mean _MEAN and scaled to standard deviation one, both computed without zeros.
    "scaled" and "small": these numbers are then multiplied by 2^n, where n is `parameters["log2"]` (4 or -4). Zeros
    stay zeros and equal numbers stay equal, so a triangular or symmetric matrix remains one: a kernel may rely on that.
    These three return a tensor without a finite variance above zero as it is. "sparse": most numbers of `value` are
    replaced by zero (`_sparse`). For each distribution, a tensor of choices (signs, classes, whole numbers) or of few
    different numbers is returned as it is, and so is any other value.
    """
    if not isinstance(value, torch.Tensor) or not is_measured(value):
        return value
    if distribution == SPARSE:
        return _sparse(value, generator(torch.device("cpu")).initial_seed())
    count, total, squares = 0, 0.0, 0.0
    for part in value.reshape(-1).split(_PART):  # torch converts all that it counts or sums before it adds
        count += int(part.count_nonzero())
        total += float(part.sum(dtype=torch.float64))
        squares += float(part.double().square().sum())
    mean = total / count
    variance = squares / count - mean**2
    if not 0 < variance < math.inf:
        return value
    factor = 1 / math.sqrt(variance)
    mean -= _MEAN / factor
    factor *= 2.0 ** parameters.get("log2", 0)
    return value.sub(mean).mul_(factor).masked_fill_(value == 0, 0)


def _sparse(value: torch.Tensor, seed: int) -> torch.Tensor:
    """Returns `value` with zeros everywhere except at the first and the last _ENDS places and _WITHIN random ones.

    For one `seed`, tensors with the same number of elements keep the same places.
    """
    random = torch.rand(_WITHIN, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ends = torch.arange(min(_ENDS, value.numel()))
    places = torch.cat([ends, value.numel() - 1 - ends, (random * value.numel()).long()]).to(value.device)
    out, kept = torch.zeros_like(value), torch.unravel_index(places, value.shape)
    out[kept] = value[kept]
    return out


def _parameters(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    named = model.named_parameters() if isinstance(model, torch.nn.Module) else []
    return [(name, each) for name, each in named if each.is_floating_point()]


def _is_constant(value: torch.Tensor) -> bool:
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())
