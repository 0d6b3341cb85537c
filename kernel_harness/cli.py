"""Arguments in, exit code out. What the arguments ask for is done elsewhere."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from kernel_harness.errors import UserError

ROOT = Path(__file__).parent.parent
VERBS = ("run", "list", "sanitize", "cache")
OK, SOME_FAILED, INTERRUPTED = 0, 1, 130

_EXAMPLES = """examples:
  python harness.py --problem matmul_tt                          judge every kernel of a problem
  python harness.py --problem matmul_tt --kernel 'tiled*'        judge some of them
  python harness.py --problem matmul_tt --kernel ~/mine.cu       judge a file from anywhere
  python harness.py --problem matmul_tt --shape M=512,K=64,N=96  at another size
  python harness.py list                                         problems and kernels

exit codes: 0 all passed, 1 some did not, 2 usage, 4 nothing can be built or run here, 130 interrupted"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. `run` is meant where no verb is given."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in (*VERBS, "-h", "--help"):
        words.insert(0, "run")
    options = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return int(options.verb(options))
    except UserError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _complain("Interrupted. What had been measured is kept.", INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _complain(text: str, code: int) -> int:
    print(f"harness: {text}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="harness.py",
        description="Judges GPU kernels: is each right, and how fast is it?",
        epilog=_EXAMPLES,
        formatter_class=form,
    )
    verbs = parser.add_subparsers(required=True, metavar="{run,list,sanitize,cache}")
    run = verbs.add_parser(
        "run", help="build, check and time kernels (the default)", epilog=_EXAMPLES, formatter_class=form
    )
    run.set_defaults(verb=_run)
    run.add_argument("--problem", required=True, metavar="NAME", help="a problem's name, or the path of its file")
    run.add_argument("--kernel", action="append", default=[], metavar="NAME", help="a name, glob or file; repeatable")
    run.add_argument("--device", default="auto", metavar="D", help="auto, cpu (emulated), cuda or cuda:N")
    run.add_argument("--shape", type=_shape, default={}, metavar="M=64,...", help="constants of the problem to replace")
    run.add_argument("--precision", metavar="FORMAT", help="also allow tf32, float16 or bfloat16 arithmetic")
    run.add_argument("--timeout", type=_positive, default=60.0, metavar="S", help="seconds per call (default 60)")
    run.add_argument(
        "--build-timeout", type=_positive, default=300.0, metavar="S", help="seconds per build (default 300)"
    )
    run.add_argument(
        "--budget", type=_positive, metavar="S", help="seconds of timing (default 2 emulated, 60 on a GPU)"
    )
    run.add_argument("--rounds", type=_count, metavar="N", help="exactly this many timed rounds")
    run.add_argument(
        "--baseline", default="torch", metavar="NAME",
        help="what speedups are against: torch, torch.compile, torch.compile:max-autotune or a kernel",
    )  # fmt: skip
    run.add_argument("--jobs", type=_count, metavar="N", help="builds side by side (default: by cores and memory)")
    run.add_argument("--seed", type=int, metavar="N", help="the secret that inputs are drawn with (default: random)")
    run.add_argument("--case", metavar="SHAPE:DISTRIBUTION", help="check this one case, time nothing")
    run.add_argument("--results", type=Path, default=ROOT / "results", metavar="DIR", help="where results are kept")
    run.add_argument("--json", action="store_true", help="print one JSON object per result instead of the table")
    run.add_argument("--watch", action="store_true", help="stay, and judge each kernel again when its file is saved")
    run.add_argument("--strict", action="store_true", help="emulated: nvcc has to compile each kernel, too")
    run.add_argument("--quick", action="store_true", help="fewer shapes and a quarter of the timing")
    listing = verbs.add_parser("list", help="problems and their kernels")
    listing.set_defaults(verb=_list)
    listing.add_argument("--problem", metavar="NAME", help="one problem only")
    mistakes = verbs.add_parser("sanitize", help="find a kernel's races, stray accesses and the like, by line")
    mistakes.set_defaults(verb=_sanitize)
    mistakes.add_argument("problem", metavar="PROBLEM", help="a problem's name, or the path of its file")
    mistakes.add_argument("kernel", metavar="KERNEL", help="a kernel's name or file")
    mistakes.add_argument("--device", default="auto", metavar="D", help="auto, cpu (emulated), cuda or cuda:N")
    mistakes.add_argument("--shape", type=_shape, default={}, metavar="M=64,...", help="look at this size only")
    mistakes.add_argument("--seed", type=int, metavar="N", help="of the inputs and of the order of threads")
    mistakes.add_argument("--json", action="store_true", help="print one JSON object per finding")
    store = verbs.add_parser("cache", help="what was built, and where it is kept")
    store.set_defaults(verb=_cache)
    store.add_argument("--clear", action="store_true", help="drop everything in it")
    return parser


def _shape(text: str) -> dict[str, int]:
    try:
        return {name.strip(): int(value) for name, value in (pair.split("=") for pair in text.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form M=64,K=128,N=96") from None


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive count")
    return value


def _list(options: argparse.Namespace) -> int:
    from kernel_harness import candidate, find
    from kernel_harness.problem import shape_text

    names = [options.problem] if options.problem else find.problem_names(ROOT)
    for name in names:
        problem = find.problem(name, ROOT)
        first = (problem.module.__doc__ or "").strip().split("\n")[0]
        print(f"{problem.name}  ({shape_text(problem.shape)})  {first}")
        for path in candidate.files(ROOT / "kernels" / problem.name):
            print(f"  {path.stem:24} {candidate.read(path).title}")
    return OK


def _cache(options: argparse.Namespace) -> int:
    from kernel_harness.build import cache

    if options.clear:
        print(f"{cache.evict(0, grace_s=0) / 2**20:.0f} MiB freed")
        return OK
    kinds: dict[str, list[int]] = {}
    for entry in cache.entries():
        kinds.setdefault(entry.kind, []).append(entry.bytes)
    print(f"{cache.root()}, at most {cache.limit_bytes() / 2**30:.1f} GiB")
    for kind, sizes in kinds.items():
        print(f"  {kind:12} {len(sizes):5} entries {sum(sizes) / 2**20:9.1f} MiB")
    return OK


def _sanitize(options: argparse.Namespace) -> int:
    from kernel_harness.process import Template

    with Template() as template:
        from kernel_harness import sanitize

        return sanitize.run(options, ROOT, template)


def _run(options: argparse.Namespace) -> int:
    # torch takes two seconds to import: --help and a mistake in the options are answered before that, and the
    # process that workers come from imports it meanwhile.
    from kernel_harness.process import Template

    with Template() as template:
        from kernel_harness import run

        results = run.run(options, ROOT, template)
    return OK if all(r.passed for r in results) else SOME_FAILED
