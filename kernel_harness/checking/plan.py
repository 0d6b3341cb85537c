"""Plans the cases that a candidate is checked on: shapes, distributions of inputs, and secret seeds."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_harness.checking import drawn_shapes
from kernel_harness.problem import sizing
from kernel_harness.problem.distributions import OWN, PARAMETERS, SPARSE
from kernel_harness.problem.lookalikes import OUTLIERS, RARE, STRETCH
from kernel_harness.problem.problem import Problem, Shape, shape_text


@dataclass(frozen=True)
class Case:
    """One check of a candidate: the problem's size constants, and the distribution and seed of the inputs.

    With the distribution PARAMETERS the inputs are the problem's own, and the parameters of the model are random.
    `shape` holds pairs of a size constant (`M`, `N`, ...) and its value. `timed_shape`: the shape is the one at which
    candidates are timed. `drawn`: the shape was drawn at random. `optional`: the problem file does not name this shape
    or this distribution, so the case is left out if `Reference.works` returns False. `poison`: device memory that the
    call allocates is first filled with NaN. `repeat`: the candidate is called twice with equal inputs, and the two
    outputs must agree within the tolerance.
    """

    shape: tuple[tuple[str, int], ...]
    distribution: str
    seed: int
    timed_shape: bool = False
    poison: bool = False
    repeat: bool = False
    drawn: bool = False
    optional: bool = False

    @property
    def name(self) -> str:
        """Returns the name of the case, as the option --case accepts it: `M=64,K=128,N=96:normal`.

        For a problem without size constants it is the distribution alone.
        """
        return ":".join(filter(None, (self.shape_name, self.distribution)))

    @property
    def random_parameters(self) -> bool:
        """Returns whether the model's parameters depend on this case's seed (`Problem.with_random_parameters`).

        The model's constructor then draws its random numbers with this seed. A parameter that the constructor sets to
        one number everywhere gets random numbers near that number.
        """
        return self.distribution == PARAMETERS

    @property
    def inputs_from(self) -> str:
        """Returns the name of the distribution of the inputs."""
        return OWN if self.random_parameters else self.distribution

    @property
    def shape_name(self) -> str:
        """Returns the size constants as text, as the option --shape accepts them: `M=64,K=128,N=96`."""
        return shape_text(dict(self.shape))


def plan(problem: Problem, seed: int, *, quick: bool = False, timed_too: Sequence[Shape] = ()) -> list[Case]:
    """Returns the cases of a run: one for each distribution of inputs at the timed shape, then cases at further shapes.

    A shape is a set of values for the problem's size constants (`M`, `N`, ...). The timed shape is the one at which
    candidates are timed. The distributions are the problem's own and those of its STRESS. A problem file without STRESS
    has variations of its own inputs instead, and then inputs that look like its own (`lookalikes`), if these change
    most of the answer (`Reference.works`). If the model has parameters, one more case at the timed shape has random
    ones (`Case.random_parameters`).
    Further shapes come from four sources, in this order. At each shape of `timed_too`, where candidates are timed after
    the problem's own size, there is a case for normal inputs, if the problem has them, and for its own. Each shape of
    CHECK_SHAPES has one case; these cases take the problem's own distribution and those of STRESS in turn. With
    `quick`, only the first three shapes of CHECK_SHAPES have a case. On an emulated device, some shapes have one size
    at its value in the file (`_stretched`). Some shapes are drawn at random (`_drawn`).
    If the model has large weights, the cases at the timed shape come last, and of these the random parameters first.
    The first case that is not optional is poisoned (`Case.poison`). The case with the problem's own distribution at the
    timed shape is repeated (`Case.repeat`). The seed of each case, and the drawn shapes, are derived from `seed`.
    """
    # Normal inputs come first, because they show that a candidate uses a coarse number format. With other inputs, such
    # a candidate only has wrong values.
    distributions = sorted([OWN, *problem.stress], key=lambda d: d != "normal")
    named = distributions if problem.states("STRESS") else [OWN]
    timed = [
        case_at(
            problem.shape, d, seed, timed_shape=True, poison=d == named[0], repeat=d == OWN, optional=d not in named
        )
        for d in (*distributions, *(() if problem.states("STRESS") else (OUTLIERS, STRETCH, RARE)))
    ]  # fmt: skip
    if problem.parameters:
        timed.append(case_at(problem.shape, PARAMETERS, seed, timed_shape=True, optional=True))
    timed_shapes = [dict(shape) for shape in (problem.shape, *timed_too)]
    shapes: list[Shape] = [s for s in problem.check_shapes if {**problem.shape, **s} not in timed_shapes]
    # Integers come first, because they give the strictest check: the answer is exact, so one missing term is visible.
    turns = [d for d in ("integers", *named) if d in named]
    further = [
        case_at({**problem.shape, **s}, turns[i % len(turns)], seed)
        for i, s in enumerate(shapes[:3] if quick else shapes)
    ]
    other_timed = [
        case_at(shape, d, seed, optional=d not in named)
        for shape in timed_too for d in distributions if d in ("normal", OWN)
    ]  # fmt: skip
    others = other_timed + further + _stretched(problem, seed) + _drawn(problem, seed, timed_too)
    if not problem.has_large_weights:
        return timed + others
    # A model takes seconds to build. It is built once for the cases at the timed shape and for the timing.
    return [*others, *sorted(timed, key=lambda case: not case.random_parameters)]


def _stretched(problem: Problem, seed: int) -> list[Case]:
    """Returns cases in which one size has its value in the problem's file. The other sizes are small enough for a CPU.

    Size constants with the same value may be one size here. Returns an empty list for a GPU, and if the problem file
    has CHECK_SHAPES or names sizes in CPU_SHAPE.
    """
    shapes = sizing.stretched(problem) if problem.emulated and not _states_sizes(problem) else []
    return [case_at(shape, OWN, seed, optional=True) for shape in shapes]


def large(problem: Problem, seed: int) -> list[Case]:
    """Returns cases for a kernel whose grid may be too small for the sizes in the problem's file, in ascending size.

    They have up to 2^27 elements. They are not in `plan`, because a CPU needs seconds and gigabytes for them. There are
    none if the problem file states sizes for a CPU or for checks.
    """
    shapes = sizing.largest(problem) if not _states_sizes(problem) and sizing.in_file(problem) else []
    return [case_at(shape, OWN, seed, optional=True) for shape in shapes]


def _states_sizes(problem: Problem) -> bool:
    return bool(problem.cpu_shape) or problem.states("CHECK_SHAPES")


def _drawn(problem: Problem, seed: int, avoid: Sequence[Shape]) -> list[Case]:
    """Returns the cases at shapes that are drawn at random, none of `avoid`. A candidate cannot know these shapes.

    If the problem file has CHECK_SHAPES, up to `drawn_shapes.COUNT` shapes in the range of CHECK_SHAPES and CPU_SHAPE
    are drawn, with one case each. The case has a random distribution of the file's STRESS, because the limits for it
    are relative to `error_scale` and so suit sums of any length. Without STRESS, it has the problem's own distribution.
    If the file has no CHECK_SHAPES, at most one shape is drawn, with sizes a little below the problem's
    (`sizing.near`). It has two cases: the problem's own distribution, and SPARSE. All these cases are optional.
    """
    rng = random.Random(derived_seed(seed, "drawn shapes"))
    if not problem.states("CHECK_SHAPES"):
        found = sizing.near(problem, rng)
        is_new = found and found not in [dict(shape) for shape in avoid]
        return [case_at(found, d, seed, drawn=True, optional=True) for d in (OWN, SPARSE)] if is_new else []
    listed = [{**problem.shape, **shape} for shape in (*problem.check_shapes, problem.cpu_shape) if shape]
    shapes = drawn_shapes.draw(listed, rng, avoid=[*listed, problem.shape, *avoid])
    distributions = (sorted(problem.stress) if problem.states("STRESS") else []) or [OWN]
    return [case_at(shape, rng.choice(distributions), seed, drawn=True, optional=True) for shape in shapes]


def case_at(shape: Shape, distribution: str, seed: int, **more: bool) -> Case:
    """Returns the case at a shape, whose own seed is derived from `seed`. `more` has values for fields of Case."""
    name = f"{shape_text(shape)}:{distribution}"
    return Case(tuple(shape.items()), distribution, derived_seed(seed, name), **more)


def derived_seed(seed: int, purpose: str) -> int:
    """Returns a seed for one purpose. It reveals neither `seed` nor the seed of another purpose."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{purpose}".encode()).digest()[:7], "big")
