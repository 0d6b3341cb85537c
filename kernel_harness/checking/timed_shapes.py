"""Chooses the further shapes at which candidates are timed, beside the problem's own size."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from kernel_harness.checking.plan import derived_seed
from kernel_harness.core.errors import UserError
from kernel_harness.problem import meta, sizing
from kernel_harness.problem.known import known
from kernel_harness.problem.problem import Problem, Shape, shape_text


def further(problem: Problem, wanted: Sequence[int | Mapping[str, Any]], seed: int) -> list[Problem]:
    """Returns the problem at each further shape at which candidates are timed, without its own size.

    These are the shapes of the file's TIME_SHAPES (`of_file`), then those that `wanted` lists, then as many drawn ones
    (`sizing.around`) as the numbers in `wanted` add up to. A 0 in `wanted` leaves out the file's shapes. The drawn
    shapes are derived from `seed`. Raises ProblemError for a shape that the problem does not have, and UserError if
    fewer shapes can be drawn than are wanted.
    """
    counts = [each for each in wanted if isinstance(each, int)]
    listed = [each for each in wanted if not isinstance(each, int)]
    found = {} if 0 in counts else {shape_text(each.shape): each for each in of_file(problem)}
    found |= {shape_text(there.shape): there for there in map(problem.at, listed)}
    for there in found.values():
        there.check_inputs()
    avoid = [there.shape for there in found.values()]
    drawn = sizing.around(problem, random.Random(derived_seed(seed, "timed shapes")), sum(counts), avoid)
    if len(drawn) < sum(counts):
        raise UserError(
            f"{problem.path}: only {len(drawn)} of {sum(counts)} further shapes can be drawn around "
            f"{shape_text(problem.shape) or 'its size'}; list shapes instead, such as --time-shapes M=64,K=48"
        )
    found |= {shape_text(shape): problem.at(shape) for shape in drawn}
    found.pop(shape_text(problem.shape), None)
    return list(found.values())


def of_file(problem: Problem) -> list[Problem]:
    """Returns the problem at each shape of its file's TIME_SHAPES; none unless it has its usual size for the device.

    Another size was asked for instead. On an emulated device, a shape whose call costs too much for a CPU
    (`meta.Cost.share`) is left out, and so is one whose cost is unknown.
    """
    if not problem.time_shapes or not _has_usual_size(problem):
        return []
    found = [problem.at(shape) for shape in problem.time_shapes]
    return [there for there in found if not problem.emulated or _suits_a_cpu(there)]


def too_large(problem: Problem) -> list[Shape]:
    """Returns the shapes of the file's TIME_SHAPES that `of_file` leaves out, because they cost too much for a CPU."""
    if not problem.emulated or not problem.time_shapes or not _has_usual_size(problem):
        return []
    found = [problem.at(shape) for shape in problem.time_shapes]
    return [there.shape for there in found if not _suits_a_cpu(there)]


def _has_usual_size(problem: Problem) -> bool:
    return problem.in_file.on(emulated=problem.emulated).shape == problem.shape


def _suits_a_cpu(problem: Problem) -> bool:
    def computed() -> bool:
        cost = meta.cost(problem)
        return cost is not None and cost.share() <= 1

    return known(problem, "suits a CPU", computed)
