"""What several verbs of the command line use: exit codes, parsers of values, and arguments such as `--problem`."""

from __future__ import annotations

import argparse
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_harness.core.arms import BASELINE
from kernel_harness.core.paths import RESULTS, kernel_folders, problem_folders
from kernel_harness.problem.candidate import files
from kernel_harness.problem.variants import VALUE

if TYPE_CHECKING:
    from kernel_harness.session.settings import Settings

# The codes 2 (wrong usage) and 4 (this machine lacks something) are `exit_code` of the UserError that was raised.
OK, SOME_FAILED, REGRESSED = 0, 1, 3
# 128 plus the number of the signal (SIGINT, SIGPIPE): a shell reports this code for a process that the signal ended.
INTERRUPTED, PIPE_CLOSED = 130, 141
EXIT_CODES = {
    OK: "success; every kernel passed, or is `UNSUPPORTED` and was not asked for by name",
    SOME_FAILED: "a kernel failed, `sanitize` found a mistake, or `verify` got another result",
    2: "wrong usage, such as an unknown name or option",
    REGRESSED: "`compare` found a kernel that became slower or broke, or a figure of a suite that became worse",
    4: "this machine lacks something that the command needs, such as a compiler, a GPU or space on the disk",
    INTERRUPTED: "interrupted (Ctrl-C or SIGTERM)",
    PIPE_CLOSED: "the program that read the output has ended (a closed pipe)",
}
"""The meaning of each exit code. The help and the documentation have these words."""


# One size constant with its value: M=64, shape[0]=8, shape=(8,64), or a range: M=256..8192:x2, M=256..1024:+256.
_SIZE = re.compile(
    r"\s*(\w+(?:\[\d+\])?)\s*=\s*"
    r"(-?\d+(?:\.\.-?\d+:[x+]\d+)?|[(\[]\s*-?\d+(?:\s*,\s*-?\d+)*\s*,?\s*[)\]])\s*(?:,|$)"
)
_MOST_SHAPES = 100
_DEFINE = re.compile(rf"([A-Za-z_]\w*)=({VALUE}(?:,{VALUE})*)")

Shape = dict[str, int | tuple[int, ...]]


def shape(text: str) -> Shape | None:
    """Returns the one shape that `text` names (`shapes`). Raises ArgumentTypeError if it names several."""
    one, *more = shapes(text)
    if more:
        raise argparse.ArgumentTypeError(
            f"{text!r} names {len(more) + 1} shapes, and only the verb `run` takes several"
        )
    return one


def shapes(text: str) -> list[Shape | None]:
    """Returns the shapes in `text`, which is written like `M=64,shape=(8,64)`: values of size constants by name.

    A value may be a range: `256..8192:x2` stands for 256, 512, 1024 and so on, `256..1024:+256` for 256, 512, 768 and
    1024. With several ranges, each value of the one occurs with each value of the others. For the text `full`, the
    shape is None, which stands for the size in the problem file. For an empty text, it is an empty dict, which stands
    for the usual size. Raises ArgumentTypeError for text of another form, with a name twice, or with too many shapes.
    """
    if text.strip() == "full":
        return [None]
    found: dict[str, Sequence[int | tuple[int, ...]]] = {}
    at = 0
    while text[at:].strip():
        one = _SIZE.match(text, at)
        if one is None or one[1] in found:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not of the form M=64,K=128,N=96 or shape=(8,64), with each name once; a range is written "
                "M=256..8192:x2 or M=256..1024:+256"
            )
        found[one[1]] = _values(one[2])
        at = one.end()
    if (number := math.prod(map(len, found.values()))) > _MOST_SHAPES:
        raise argparse.ArgumentTypeError(f"{text!r} names {number} shapes; name at most {_MOST_SHAPES}")
    return [dict(zip(found, values, strict=True)) for values in itertools.product(*found.values())]


def _values(text: str) -> Sequence[int | tuple[int, ...]]:
    """Returns the values that a size constant is to have: those of a range, or the one number or tuple in `text`."""
    numbers = tuple(map(int, re.findall(r"-?\d+", text)))
    if ".." not in text:
        return [numbers if text[0] in "([" else numbers[0]]
    first, last, step = numbers
    if first > last or step < 1 or (":x" in text and (first < 1 or step < 2)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is an empty or endless range: it goes up, by +1 or more, or from 1 or more by x2 or more"
        )
    if ":+" in text:
        return range(first, last + 1, step)
    return [value for power in range(last.bit_length()) if (value := first * step**power) <= last]


def time_shapes(text: str) -> list[int | Shape]:
    """Returns the further shapes in `text`, of the form of `shapes`, or the one number in it.

    Raises ArgumentTypeError for other text.
    """
    if text.strip().isdecimal():
        return [int(text)]
    found = [shape for shape in shapes(text) if shape] if "=" in text else []
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form M=64,K=128,N=96, and no number of shapes")
    return [*found]


def definition(text: str) -> tuple[str, list[str]]:
    """Returns the name and the values in `text`, such as `TILE=16,32`. Raises ArgumentTypeError for other text."""
    found = _DEFINE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form TILE=16,32: a name, and numbers or names without spaces"
        )
    return found[1], found[2].split(",")


def positive(text: str) -> float:
    """Returns `text` as a positive, finite number of seconds. Raises ValueError or ArgumentTypeError for other text."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return value


def positive_percent(text: str) -> float:
    """Returns `text`, such as `90` or `90%`, as a percentage. Raises ValueError or ArgumentTypeError for other text."""
    value = float(text.removesuffix("%"))
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not a percentage above 0 and up to 100")
    return value


def count(text: str) -> int:
    """Returns `text` as a whole number of 1 or more. Raises ValueError or ArgumentTypeError for other text."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of 1 or more")
    return value


def add_problem(parser: argparse.ArgumentParser, flag: str = "--problem", **more: Any) -> None:
    """Declares the argument `flag` on `parser`: the name of a problem or the path of its file.

    If `flag` does not begin with dashes, the argument is positional. `more` goes to `add_argument`.
    """
    more.setdefault("help", "the name of a problem (`list` shows all), or the path of its file")
    argument = parser.add_argument(flag, metavar="PROBLEM", **more)
    argument.completer = problem_names  # type: ignore[attr-defined]


def add_kernel(parser: argparse.ArgumentParser, flag: str, **more: Any) -> None:
    """Declares the argument `flag` on `parser`: the name of a kernel or the path of its file.

    If `flag` does not begin with dashes, the argument is positional. `more` goes to `add_argument`.
    """
    parser.add_argument(flag, metavar="KERNEL", **more).completer = _kernel_names  # type: ignore[attr-defined]


def add_results(parser: argparse.ArgumentParser) -> None:
    """Declares the argument `--results` on `parser`: the folder of stored results."""
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="DIR", help="the folder of stored results (default: ./results)"
    )


def add_judging(parser: argparse.ArgumentParser, baseline: str, budget: str) -> None:
    """Declares on `parser` what all verbs that judge kernels take, such as `--precision`, `--timeout` and `--quick`.

    `baseline` and `budget` are the help of the arguments of these names.
    """
    parser.add_argument(
        "--precision", metavar="FORMAT",
        help="allow kernels to compute in this coarser number format: tf32, float16 or bfloat16",
    )  # fmt: skip
    parser.add_argument(
        "--baseline", default=BASELINE, metavar="NAME",
        help=f"what speedups are relative to: {baseline} (default: {BASELINE})",
    )  # fmt: skip
    parser.add_argument("--budget", type=positive, metavar="S", dest="budget_s", help=budget)
    parser.add_argument(
        "--timeout", type=positive, default=60.0, metavar="S", dest="call_s",
        help="time limit of one call in seconds (default: 60)",
    )  # fmt: skip
    parser.add_argument(
        "--build-timeout", type=positive, default=300.0, metavar="S", dest="build_s",
        help="time limit of one build in seconds (default: 300)",
    )  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true", help="check fewer shapes and spend a quarter of the time on timing"
    )
    add_time_shapes(parser)
    parser.add_argument(
        "--require-own-kernels", type=positive_percent, metavar="90",
        help="give no rank to a kernel whose own CUDA kernels take less than 90%% of the time on the GPU (under "
        "emulation: make less of the output), because a library does the rest",
    )  # fmt: skip
    parser.add_argument(
        "--sanitize", action="store_true",
        help="on a GPU: look for races and accesses outside of memory in kernels that passed, which takes longer "
        "(under emulation this is done without the option)",
    )  # fmt: skip
    add_results(parser)


def add_time_shapes(parser: argparse.ArgumentParser) -> None:
    """Declares `--time-shapes` on `parser`: the further shapes at which kernels are timed."""
    parser.add_argument(
        "--time-shapes", type=time_shapes, default=[], action="extend", metavar="N|M=64,...",
        help="also time at N shapes drawn around the problem's size, or at the shape M=64,..., and rank by the "
        "geometric mean of the speedups; may be given several times; 0: not at those of the problem's file",
    )  # fmt: skip


def add_device(parser: argparse.ArgumentParser, *, sweep: bool = False) -> None:
    """Declares two arguments on `parser`: `--device`, and `--shape` for the size constants (`M`, `N`, ...).

    With `sweep`, `--shape` may name several shapes, and the parsed value `shapes` is their list, empty by default.
    """
    parser.add_argument(
        "--device", default="auto", metavar="D",
        help="cuda or cuda:N for a GPU; cpu to emulate CUDA; auto for a GPU if there is one, else cpu (default: auto)",
    )  # fmt: skip
    several: dict[str, Any] = {"type": shapes, "default": [], "action": "extend", "dest": "shapes"}
    one: dict[str, Any] = {"type": shape, "default": {}, "action": _Once}
    parser.add_argument(
        "--shape", metavar="M=64,...", **(several if sweep else one),
        help="use these values for the size constants of the problem, such as M=512,K=64,N=96 or shape=(8,64); full: "
        "the size in the problem's file, also under emulation"
        + ("; M=256..8192:x2 or M=256..1024:+256: several shapes; may be given several times" if sweep else ""),
    )  # fmt: skip


def add_devices(parser: argparse.ArgumentParser) -> None:
    """Declares `--device` on `parser`, for a verb that uses all GPUs."""
    parser.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto",
        help="cuda for GPUs, cpu to emulate CUDA, auto for GPUs if there are any, else cpu (default: auto)",
    )  # fmt: skip


def add_define(parser: argparse.ArgumentParser, values: str) -> None:
    """Declares `--define` on `parser`: compile-time parameters of kernels. `values` is the end of its help."""
    parser.add_argument(
        "--define", type=definition, metavar="NAME=...", dest="defines", action="append", default=[],
        help=f"give a constant or macro of the kernel's file another value, such as {values}",
    )  # fmt: skip


class _Once(argparse.Action):
    """The action of an option of which a second value would silently replace the first one."""

    def __call__(
        self, parser: argparse.ArgumentParser, parsed: argparse.Namespace, value: Any, option: Any = None
    ) -> None:
        """Stores the value. Ends the command with a usage error if the option was given before."""
        if getattr(parsed, self.dest) is not self.default:
            parser.error(f"{option} is given twice: give all sizes in one, or run the command once for each shape")
        setattr(parsed, self.dest, value)


def add_files(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments `--junit` and `--markdown` on `parser`: the files that are to be written."""
    parser.add_argument("--junit", type=file, metavar="FILE", help="write JUnit XML, a test case for each kernel")
    parser.add_argument(
        "--markdown", type=file, metavar="FILE", help="write the table and the failures' first lines as Markdown"
    )


def file(text: str) -> Path:
    """Returns `text` as the path of a file. Raises ArgumentTypeError if no file can be made there."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} cannot be written: name a file in a folder that exists")
    return path


def settings(parsed: argparse.Namespace, **more: Any) -> Settings:
    """Returns the settings of a run: the parsed arguments that have the name of a setting, and those in `more`.

    Raises UserError for an unknown number format.
    """
    from kernel_harness.session.settings import Settings

    names = {"call_s", "build_s", *(field.name for field in fields(Settings))}
    return Settings.of(**{name: value for name, value in vars(parsed).items() if name in names} | more)


def problem_names(**_: Any) -> list[str]:
    """Returns the names of all problems, for the completion of arguments and to recognize a word that names one."""
    return sorted({path.stem for folder in problem_folders() for path in files(folder) if path.suffix == ".py"})


def run_names(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Returns the words that may name a run, for the completion of arguments: `latest`, `previous` and ids."""
    found: set[str] = set()
    for path in Path(getattr(parsed_args, "results", RESULTS)).glob("*/*/runs.jsonl"):
        found.update(re.findall(r'"run": "([\w-]+)"', path.read_text(encoding="utf-8", errors="replace")))
    return ["latest", "previous", *sorted(found)]


def _kernel_names(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    typed = getattr(parsed_args, "problem", None) or getattr(parsed_args, "named_problem", None)
    problems = [Path(typed).stem] if typed else problem_names()
    return [path.stem for folder in kernel_folders() for problem in problems for path in files(folder / problem)]
