"""Composes the shell command that judges one candidate again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from kernel_harness.checking.cases import Case
from kernel_harness.core import paths
from kernel_harness.device import Device
from kernel_harness.problem import lookup, variants
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.problem import Problem, Shape, shape_text
from kernel_harness.session.settings import Settings
from kernel_harness.workers.process import Limits


def command(
    problem: Problem, device: Device, settings: Settings, candidate: Candidate, case: Case | None,
    further: Sequence[Shape] = (),
) -> str:  # fmt: skip
    """Returns the shell command that judges a candidate again. It works in any folder.

    If `case` is not None, the command checks only that case, on the same inputs. Of the options for timing, the command
    contains only the `further` shapes at which candidates are timed, because they are checked there, too. Returns an
    empty string if the candidate is not stored in a file.
    """
    if not candidate.path.is_file():
        return ""
    name, _, strict = device.name.partition("-")
    words = [*paths.command(anywhere=True), "--problem", _problem_word(problem)]
    words += ["--kernel", str(candidate.path.absolute()), *_defines(candidate)]
    words += ["--device", name, *([f"--{strict}"] if strict else [])]
    if problem.shape:
        words += ["--shape", shape_text(problem.shape)]
    if further or problem.time_shapes:
        words += [word for text in ("0", *map(shape_text, further)) for word in ("--time-shapes", text)]
    if case is not None:
        words += ["--case", case.name, "--seed", str(settings.seed)]
    if settings.quick:
        words += ["--quick"]
    if settings.results != paths.RESULTS:
        words += ["--results", str(settings.results.absolute())]
    if settings.precision is not None:
        words += ["--precision", settings.precision.value]
    for option, limit, default in (
        ("--timeout", settings.limits.call_s, Limits().call_s),
        ("--build-timeout", settings.limits.build_s, Limits().build_s),
    ):
        words += [option, f"{limit:g}"] if limit != default else []
    return shlex.join(words)


def kernel_file(reproduce: str) -> Path | None:
    """Returns the path of the kernel file in a command that `command` has returned; None for an empty one."""
    words = shlex.split(reproduce)
    return Path(words[words.index("--kernel") + 1]) if "--kernel" in words[:-1] else None


def sanitize_command(problem: Problem, device: Device, candidate: Candidate) -> str:
    """Returns the shell command that sanitizes a candidate; it works in any folder.

    If the candidate is not stored in a file, the command names KERNEL in its place.
    """
    kernel = str(candidate.path.absolute()) if candidate.path.is_file() else "KERNEL"
    shape = ["--shape", shape_text(problem.shape)] if problem.shape else []
    words = [*paths.command(anywhere=True), "sanitize", _problem_word(problem), kernel]
    return shlex.join([*words, *_defines(candidate), "--device", device.name.partition("-")[0], *shape])


def _defines(candidate: Candidate) -> list[str]:
    """Returns the options that make the candidate of its kernel file, if it is a variant."""
    return [word for define in variants.parts(candidate.name)[1] for word in ("--define", define)]


def _problem_word(problem: Problem) -> str:
    """Returns the problem's name if the problem is shipped with the harness, otherwise its file's absolute path."""
    found = lookup.problem_path(problem.name, paths.SHIPPED)
    return problem.name if found and found.samefile(problem.path) else str(problem.path.absolute())
