"""Runs the programs of a Triton kernel's grid, many at once where they take the same way through the kernel.

Import this module only after Triton. Programs that run at once execute each statement together. A GPU may run them in
this order, too, unless one waits for another; such kernels run one program after the other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from cuda_on_cpu.emulator.triton_memory import Array, Memory
from cuda_on_cpu.emulator.triton_vectors import Diverged, NotTogether, Programs, interpreter

ELEMENTS = 1 << 19
"""About so many elements of the kernel's largest block, of all programs together, are computed at once."""
_FIRST = 16  # programs at once of a kernel whose largest block is not known
_DEEPEST = 8  # groups of groups
_widest: dict[tuple[Any, str], int] = {}  # the elements of the largest block, by kernel and constants
_one_by_one: set[tuple[Any, str]] = set()  # kernels with an operation that is known for one program only


def launch(kernel: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], *, at_once: bool = True) -> None:
    """Runs a kernel for all programs of its grid. `kernel` is the interpreter's GridExecutor for this launch.

    If not `at_once`, one program runs after the other. Raises what the kernel raises.
    """
    names = inspect.getfullargspec(kernel.fn)
    passed = {name: value for name, value in keywords.items() if name in (*names.args, *names.kwonlyargs)}
    for hook in kernel.pre_run_hooks:
        hook(*arguments, **passed)
    values = inspect.getcallargs(kernel.fn, *arguments, **passed)
    grid = kernel.grid(values) if callable(kernel.grid) else kernel.grid
    for name in values.keys() - set(kernel.constexprs):
        values[name] = interpreter._implicit_cvt(values[name])
    code = kernel.fn, str([values[name] for name in kernel.constexprs])
    _Launch(lambda: kernel.fn(**values), (*grid, 1, 1)[:3], code).run(at_once)


class _Launch:
    def __init__(self, body: Callable[[], None], grid: Sequence[Any], code: tuple[Any, str]) -> None:
        self._body, self._grid, self._code = body, tuple(int(size) for size in grid), code
        self._memory, self._plain = Memory(), interpreter.interpreter_builder
        self._programs = Programs(self._memory, self._plain)
        for builder in (self._plain, self._programs):
            builder.set_grid_dim(*self._grid)

    def run(self, at_once: bool) -> None:
        count, first = int(np.prod(self._grid)), 0
        at_once = at_once and self._code not in _one_by_one
        while at_once and first < count:
            size = max(1, ELEMENTS // _widest[self._code]) if self._code in _widest else _FIRST
            numbers = np.arange(first, min(first + size, count))
            at_once = self._together(numbers)
            first += len(numbers)
            _widest[self._code] = self._programs.widest
        for number in range(first, count):
            self._alone(number)

    def _together(self, numbers: Array, depth: int = 0) -> bool:
        """Runs the programs with these numbers, in groups that take the same way.

        Returns whether all operations of the kernel are known for several programs.
        """
        programs = self._programs
        programs.ids = [each.astype(np.int32) for each in np.unravel_index(numbers, self._grid)]
        programs.atomics = False
        self._memory.begin()
        try:
            with _built_by(programs):
                self._body()
            return True
        except Diverged as diverged:
            self._memory.undo()
            values = diverged.values
        except Exception as error:  # the programs alone raise it again, in order, or do what could not be done at once
            self._memory.undo()
            if isinstance(error, NotTogether):
                _one_by_one.add(self._code)
            for number in numbers:
                self._alone(number)
            return False
        kinds, first = np.unique(values, return_index=True)
        groups = [numbers[values == kinds[i]] for i in np.argsort(first)]
        if depth == _DEEPEST:
            groups = [numbers[i : i + 1] for i in range(len(numbers))]
        return all([self._together(group, depth + 1) for group in groups])

    def _alone(self, number: int) -> None:
        self._plain.set_grid_idx(*(int(i) for i in np.unravel_index(number, self._grid)))
        self._body()


@contextmanager
def _built_by(builder: Any) -> Any:
    """Returns a context in which `builder` carries out the operations of the language."""
    semantic = interpreter.interpreter_semantic
    before, semantic.builder = semantic.builder, builder
    try:
        yield
    finally:
        semantic.builder = before
