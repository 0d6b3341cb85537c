"""The verb `serve`: offers judging to programs over HTTP."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kernel_harness.cli.arguments import OK, add_devices, count, positive
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.core.paths import RESULTS

HELP = "offer judging to programs and other machines over HTTP"
EXAMPLES = (
    ("serve", "judge what programs on this machine submit to http://127.0.0.1:8930"),
    ("serve --host 0.0.0.0 --tokens FILE", "judge what other machines submit that show a token"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `serve`."""
    add_devices(parser)
    parser.add_argument("--jobs", type=count, metavar="N", help="the number of processor cores to use (default: all)")
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="listen on this address (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8930, metavar="P", help="listen on this port (default: 8930)")
    parser.add_argument(
        "--tokens", type=Path, metavar="FILE",
        help="a file with lines `owner token`; without tokens only this machine may submit",
    )  # fmt: skip
    parser.add_argument(
        "--state", type=Path, default=RESULTS / "service", metavar="DIR",
        help="the folder of jobs and verdicts (default: results/service)",
    )  # fmt: skip
    parser.add_argument(
        "--accept-problem-texts", action="store_true",
        help="judge problems that clients send as text: their code runs with the rights of the server",
    )  # fmt: skip
    parser.add_argument("--queue", type=count, default=20_000, metavar="N", help="the most waiting jobs (20000)")
    parser.add_argument("--quota", type=count, default=5000, metavar="N", help="the most of one token (5000)")
    parser.add_argument("--max-body", type=count, default=16 << 20, metavar="BYTES", help="of a request (16 MiB)")
    parser.add_argument("--body-timeout", type=positive, default=30.0, metavar="S", help="to send a request (30)")
    parser.add_argument(
        "--drain", type=positive, default=600.0, metavar="S",
        help="the longest time to end what is being judged after SIGTERM (default: 600)",
    )  # fmt: skip


def main(parsed: argparse.Namespace) -> int:
    """Serves until SIGTERM or Ctrl-C. Returns 0 when what was being judged has its verdict.

    Raises EnvironmentLacking if a package is missing or this machine cannot judge, and UserError for a mistake.
    """
    try:
        from kernel_harness.service import server
    except ImportError as error:
        if error.name not in ("fastapi", "uvicorn", "starlette", "pydantic"):
            raise
        raise EnvironmentLacking("the verb serve needs more packages: pip install fastapi uvicorn") from None
    from kernel_harness.service.service import Limits
    from kernel_harness.service.store import Store
    from kernel_harness.service.tokens import tokens
    from kernel_harness.suite.pool import EvaluatorPool

    known = tokens(parsed.tokens)
    hidden = [parsed.state, *([parsed.tokens] if parsed.tokens else [])]
    limits = Limits(parsed.queue, parsed.quota, parsed.accept_problem_texts)
    with (
        server.listening(parsed.host, parsed.port, has_tokens=bool(known)) as listener,
        Store(parsed.state) as store,
        EvaluatorPool(device=parsed.device, jobs=parsed.jobs, hidden=hidden) as pool,
    ):
        print("starting the evaluators", file=sys.stderr, flush=True)
        served = server.Serving(
            store, pool, pool.device.label, parsed.state / "problems", known, limits, parsed.max_body,
            parsed.body_timeout, parsed.drain,
        )  # fmt: skip
        server.serve(served, listener)
    return OK
