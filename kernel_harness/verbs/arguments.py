"""Types and arguments that verbs share, and what completes them on a command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kernel_harness.paths import KERNELS, PROBLEMS, ROOT

OK, SOME_FAILED = 0, 1


def shape(text: str) -> dict[str, int]:
    """`M=64,K=128,N=96`."""
    try:
        return {name.strip(): int(value) for name, value in (pair.split("=") for pair in text.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form M=64,K=128,N=96") from None


def positive(text: str) -> float:
    """Seconds."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return value


def count(text: str) -> int:
    """One or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive count")
    return value


def add_problem(parser: argparse.ArgumentParser, flag: str = "--problem", **more: Any) -> None:
    """A problem, by name or path; as a positional argument where `flag` has no dashes."""
    argument = parser.add_argument(flag, metavar="PROBLEM", help="a problem's name, or the path of its file", **more)
    argument.completer = _problem_names  # type: ignore[attr-defined]


def add_kernel(parser: argparse.ArgumentParser, flag: str, **more: Any) -> None:
    """A kernel of the problem, by name or path."""
    parser.add_argument(flag, metavar="KERNEL", **more).completer = _kernel_names  # type: ignore[attr-defined]


def add_results(parser: argparse.ArgumentParser) -> None:
    """Where results are kept."""
    parser.add_argument("--results", type=Path, default=ROOT / "results", metavar="DIR", help="where results are kept")


def add_device(parser: argparse.ArgumentParser) -> None:
    """What to run on, and how large."""
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu (emulated), cuda or cuda:N")
    parser.add_argument(
        "--shape", type=shape, default={}, metavar="M=64,...", help="constants of the problem to replace"
    )


def _stems(folder: Path, *suffixes: str) -> list[str]:
    return sorted(p.stem for p in folder.glob("*") if p.suffix in suffixes and not p.name.startswith(("_", ".")))


def _problem_names(**_: Any) -> list[str]:
    return _stems(PROBLEMS, ".py")


def _kernel_names(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    folders = [Path(parsed_args.problem).stem] if getattr(parsed_args, "problem", None) else _problem_names()
    return [name for folder in folders for name in _stems(KERNELS / folder, ".py", ".cu")]
