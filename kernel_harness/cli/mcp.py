"""The verb `mcp`: offers judging, sanitizing, profiling and comparing as tools to agents (Model Context Protocol)."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_harness.cli.arguments import OK, add_devices, positive
from kernel_harness.core import atomic_file
from kernel_harness.core.closing import Closing
from kernel_harness.core.errors import EnvironmentLacking, UserError

if TYPE_CHECKING:
    from kernel_harness.results.record import Result
    from kernel_harness.suite.pool import EvaluatorPool
    from kernel_harness.timing.intervals import Interval

HELP = "offer the harness to agents as tools, by the Model Context Protocol"
EXAMPLES = (
    ("mcp", "answer an agent that starts this command, over its input and output"),
    ("mcp --http 8931", "answer agents on this machine at http://127.0.0.1:8931/mcp"),
)
_INSTRUCTIONS = (
    "Judges GPU kernels in KernelBench's format: a problem file defines Model, get_inputs and get_init_inputs, and a "
    "kernel file defines ModelNew. A problem is a name that `list` shows, the path of a file, or the text of a file. "
    "Start with `judge`. Ask `sanitize` after a wrong answer or a crash, and `profile` to make a right kernel faster."
)
# About 2,000 tokens of a model: a longer answer would leave less room for the work on the kernel.
_MOST_CHARACTERS = 8000
_COMMAND_S = 600


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `mcp`."""
    add_devices(parser)
    parser.add_argument(
        "--budget", type=positive, metavar="S", dest="budget_s", help="the most seconds to spend on timing one kernel"
    )
    parser.add_argument("--http", type=int, metavar="PORT", help="listen on this port of this machine, not on stdin")


def main(parsed: argparse.Namespace) -> int:
    """Answers agents until the input ends or the process is interrupted. Returns 0.

    Raises EnvironmentLacking if the package mcp is not installed.
    """
    try:
        from mcp.server import MCPServer
    except ImportError:
        raise EnvironmentLacking("the verb mcp needs the package mcp 2 or later: pip install 'mcp>=2'") from None
    with Tools(parsed.device, parsed.budget_s) as tools:
        server = MCPServer("kernel-harness", instructions=_INSTRUCTIONS, log_level="WARNING")
        for tool in (tools.judge, tools.sanitize, tools.profile, tools.compare, tools.list):
            server.tool(structured_output=False)(tool)
        with suppress(KeyboardInterrupt):  # how a client ends a server
            if parsed.http is None:
                server.run("stdio")
            else:
                server.run("streamable-http", host="127.0.0.1", port=parsed.http)
    return OK


class Tools(Closing):
    """The tools. Each returns a text of at most _MOST_CHARACTERS: verdict, line and advice first.

    `device` and `budget_s` are as for the command `run`. The processes that judge are kept between the calls. An
    argument that cannot be used, such as an unknown problem, is answered by a sentence and not raised: an agent can
    then correct it.
    """

    def __init__(self, device: str, budget_s: float | None) -> None:
        self._device, self._budget_s = device, budget_s
        self._open = ExitStack()
        self._folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="kernel-harness-mcp-")))
        self._lock = threading.Lock()
        self._pool: EvaluatorPool | None = None

    def close(self) -> None:
        """Ends the processes that judge and removes the files. The end of a `with` block calls this method."""
        self._open.close()

    def judge(self, problem: str, source: str) -> str:
        """Checks a kernel against the reference of a problem, and times it if it is right.

        `source` is the text of the kernel's file: Python that defines ModelNew, or CUDA C++ that defines forward.
        """
        return self._answer(lambda: _verdict(self._kept_pool().evaluate(self._problem(problem), source)))

    def sanitize(self, problem: str, source: str) -> str:
        """Finds races, accesses out of bounds and uninitialised reads in a CUDA kernel, each with its line."""
        return self._answer(lambda: self._command("sanitize", self._problem(problem), self._kernel(source)))

    def profile(self, problem: str, source: str) -> str:
        """Shows launches, memory traffic by line, registers and what limits the time of one call of a CUDA kernel."""
        return self._answer(lambda: self._command("profile", self._problem(problem), self._kernel(source)))

    def compare(self, problem: str, before: str, after: str) -> str:
        """Times two versions of a kernel, the texts `before` and `after`, in the same rounds, and tells the change."""

        def answer() -> str:
            budget = ["--budget", f"{self._budget_s:g}"] if self._budget_s else []
            sides = [self._kernel(before, "before"), self._kernel(after, "after")]
            return self._command("compare", *sides, "--problem", self._problem(problem), *budget)

        return self._answer(answer)

    def list(self, problem: str = "") -> str:
        """Lists the problems with their kernels and last results, or those of one problem."""
        return self._answer(lambda: self._command("list", *([problem] if problem else []), on_device=False))

    def _answer(self, work: Callable[[], str]) -> str:
        try:
            text = work()
        except UserError as error:
            text = f"Not judged: {error}"
        left = len(text) - _MOST_CHARACTERS
        return text if left <= 0 else f"{text[:_MOST_CHARACTERS]}\n... {left} more characters are left out"

    def _kept_pool(self) -> EvaluatorPool:
        from kernel_harness.suite.pool import EvaluatorPool

        with self._lock:
            if self._pool is None:
                pool = EvaluatorPool(device=self._device, budget_s=self._budget_s)
                self._pool = self._open.enter_context(pool)
            return self._pool

    def _problem(self, problem: str) -> str:
        return self._file(problem, "problem.py") if "\n" in problem else problem

    def _kernel(self, source: str, name: str = "kernel") -> str:
        from kernel_harness.problem import lookup

        candidate = lookup.source(source)
        return self._file(candidate.source, name + candidate.path.suffix)

    def _file(self, text: str, name: str) -> str:
        return str(atomic_file.of_text(self._folder, text, name))

    def _command(self, verb: str, *words: str, on_device: bool = True) -> str:
        """Runs a verb of the command and returns what it prints."""
        device = ["--device", self._device] if on_device else []
        own: Sequence[str] = [sys.executable, "-m", "kernel_harness", verb, *words, *device]
        try:
            done = subprocess.run(own, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMMAND_S)
        except subprocess.TimeoutExpired:
            raise UserError(f"{verb} did not end within {_COMMAND_S} s") from None
        more = done.stderr if done.returncode else ""  # why a kernel failed, beside the progress
        text = "\n".join(filter(None, [done.stdout.strip(), more.strip()])) or "Nothing was found."
        return re.sub(rf"{re.escape(str(self._folder))}/\w{{12}}/", "", text)


def _verdict(result: Result) -> str:
    """Returns the verdict for a model's context. No seed is in it: a program that knew it could predict the inputs."""
    from kernel_harness.core.terminal import Terminal
    from kernel_harness.results import failure_text
    from kernel_harness.results.published import published

    if not result.passed:
        return failure_text.failure(published(result), Terminal())
    lines = [f"PASSED: right at {result.shapes_checked} sizes."]
    if result.restricted_to:
        lines.append(f"It accepts {', '.join(result.restricted_to)} only.")
    if timing := result.timing:
        lines.append(f"Time of a call: {_with_interval(timing.time)} ms.")
        if result.speedup and not result.further:
            lines.append(f"{_with_interval(result.speedup)} times as fast as torch.")
    lines += _at_further_shapes(result)
    if result.emulated:
        lines.append("Without a GPU, CUDA is emulated: the time does not predict a GPU's.")
    return "\n".join([*lines, *filter(None, [result.reason]), *failure_text.printed(result, 10)])


def _at_further_shapes(result: Result) -> list[str]:
    """Returns the lines on a kernel that was timed at several shapes: the speedup at each, or why there is none."""
    from kernel_harness.problem.problem import shape_text
    from kernel_harness.results.record import at_each_shape

    if not result.further or not result.timing:
        return []
    each = ((shape_text(one.shape), one.speedup, one.verdict) for one in at_each_shape(result))
    lines = [f"At {shape}: {f'{_with_interval(found)} times' if found else why}" for shape, found, why in each]
    mean = f"The geometric mean is {_with_interval(result.speedup)} times." if result.speedup else ""
    return [f"As fast as torch, at {len(lines)} shapes:", *lines, *filter(None, [mean])]


def _with_interval(found: Interval) -> str:
    """Returns an estimate with its 95% interval, which is missing where there were too few rounds."""
    from kernel_harness.results.cells import bounds

    within = bounds(found, "{:.4g}".format, " to ")
    return f"{found.estimate:.4g} ({f'95% interval: {within}' if within else 'no interval: too few rounds'})"
