"""The command `python -m cuda_on_cpu`: runs a Python program with CUDA on the CPU, unchanged."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

_USAGE = """usage: python -m cuda_on_cpu [--sanitize] SCRIPT.py [ARGUMENT ...]
       python -m cuda_on_cpu [--sanitize] -m MODULE [ARGUMENT ...]

Runs a program that uses torch.utils.cpp_extension and device="cuda" on a machine without a GPU. With --sanitize, prints
the memory errors and races of its kernels at the end, and exits with 1 if there are any."""


def main(words: Sequence[str]) -> int:
    """Runs the program that `words` name. Returns the exit status, unless the program ends with its own."""
    sanitized = words[:1] == ["--sanitize"]
    program = list(words[sanitized:])
    is_module = program[:1] == ["-m"]
    program = program[is_module:]
    if not program or program[0].startswith("-"):
        print(_USAGE, file=sys.stderr)
        return 0 if program[:1] in (["-h"], ["--help"]) else 2
    if not is_module and not Path(program[0]).exists():
        print(f"python -m cuda_on_cpu: there is no file {program[0]}", file=sys.stderr)
        return 2
    from cuda_on_cpu import api
    from cuda_on_cpu.core.errors import UserError

    try:
        api.enable(sanitize=sanitized, tell=lambda text: print(f"cuda_on_cpu: {text}\n", end="", file=sys.stderr))
    except UserError as error:
        print(f"python -m cuda_on_cpu: {error}", file=sys.stderr)
        return error.exit_code
    found: list[str] = []
    if sanitized:
        api.begin_sanitizing()
    try:
        _run(program, is_module)
    finally:
        found += [each.sentence for each in api.end_sanitizing()] if sanitized else []
        found += filter(None, [api.reached_lack()])
        for sentence in found:
            print(sentence, file=sys.stderr)
    return int(bool(found))


def _run(program: list[str], is_module: bool) -> None:
    """Runs a module or a script as `python` does: with its arguments, and its folder in front of the search path."""
    sys.argv = program
    if is_module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(program[0]).resolve().parent)
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
