"""An evaluator judges the candidates that the driver of a suite sends, on one device.

If its driver is killed, the evaluator ends all its processes, removes its temporary files and ends itself.
"""

from __future__ import annotations

import json
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from kernel_harness.core import phases
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.core.precision import Precision
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import to_line as record_line
from kernel_harness.sandbox.fork_server_process import ForkServerProcess
from kernel_harness.sandbox.process import Limits
from kernel_harness.session.settings import Settings
from kernel_harness.suite import messages, workplace
from kernel_harness.suite.messages import Began, Finish, Judge, Judged, Lacking, Message, Ready, Unusable
from kernel_harness.suite.station import Assignment, ProblemUnusable, Station

_PATIENCE_S = 0.2


def main(process: ForkServerProcess) -> int:
    """Judges the candidates that the driver sends, until the driver sends Finish or is killed. Returns the exit code.

    `process` is the fork server of the evaluator's workers. The command-line arguments are those of
    `evaluator_process`, whose `main` lists the exit codes.
    """
    phases.record("start", time.monotonic() - (time.time() - psutil.Process().create_time()))
    end = socket.socket(fileno=int(sys.argv[1]))
    inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    signal.signal(signal.SIGTERM, _interrupt)
    folder, given = Path(sys.argv[3]), parsed(sys.stdin.read())

    def tell(message: Message) -> None:
        end.sendall(messages.to_line(message))

    try:
        threading.Thread(target=_receive, args=(end, inbox), daemon=True).start()
        with Station(sys.argv[2], given.settings, given.hidden, folder, process) as station:
            tell(Ready(station.device.label, str(station.device.environment().get("device", "unknown"))))
            _serve(station, inbox, tell)
    except (KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        workplace.leave(folder)
        return 1
    except EnvironmentLacking as error:
        tell(Lacking(str(error)))
        return error.exit_code
    return 0


def parameters(settings: Settings, hidden: Sequence[Path]) -> str:
    """Returns an evaluator's start parameters as JSON: what a suite can set, and paths that no candidate may read."""
    chosen = {
        "seed": settings.seed, "budget_s": settings.budget_s, "baseline": settings.baseline, "quick": settings.quick,
        "jobs": settings.jobs, "precision": settings.precision, "call_s": settings.limits.call_s,
        "build_s": settings.limits.build_s, "compiled": settings.compiled,
    }  # fmt: skip
    return json.dumps({"settings": chosen, "hidden": [str(path.absolute()) for path in hidden]})


@dataclass(frozen=True)
class Parameters:
    """The start parameters of an evaluator."""

    settings: Settings
    hidden: tuple[Path, ...]


def parsed(text: str) -> Parameters:
    """Returns the start parameters in a text that `parameters` wrote."""
    given: dict[str, Any] = json.loads(text)
    chosen = given["settings"]
    settings = Settings(
        seed=chosen["seed"], budget_s=chosen["budget_s"], baseline=chosen["baseline"], quick=chosen["quick"],
        jobs=chosen["jobs"], precision=chosen["precision"] and Precision(chosen["precision"]),
        limits=Limits(call_s=chosen["call_s"], build_s=chosen["build_s"]), compiled=chosen["compiled"],
    )  # fmt: skip
    return Parameters(settings, tuple(Path(path) for path in given["hidden"]))


def _receive(end: socket.socket, inbox: queue.SimpleQueue[Message]) -> None:
    """Puts each message of the driver into `inbox`. Interrupts the main thread if the driver has been killed.

    Runs in a thread that does nothing else, so the driver never waits for this process when it sends.
    """
    with end.makefile("rb") as lines:
        for line in lines:
            message = messages.from_line(line)
            inbox.put(message)
            if isinstance(message, Finish):
                return
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    signal.pthread_kill(main_thread, signal.SIGTERM)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the cleanup is not interrupted
    raise KeyboardInterrupt


def _serve(station: Station, inbox: queue.SimpleQueue[Message], tell: Callable[[Message], None]) -> None:
    while True:
        try:
            message = inbox.get(block=not station.waiting)
        except queue.Empty:
            message = None
        match message:
            case Finish():
                return
            case Judge(number, problem, problem_path, name, path, source):
                assignment = Assignment(number, Path(problem_path), problem, Candidate(name, Path(path), source))
                _try(station, tell, assignment, station.add)
            case None:
                chosen = station.next(_PATIENCE_S)
                if chosen is not None:
                    _try(station, tell, chosen, lambda each: _judge(station, tell, each))


def _judge(station: Station, tell: Callable[[Message], None], assignment: Assignment) -> None:
    tell(Began(assignment.number))
    start = time.monotonic()
    results = station.judge(assignment)
    lines = tuple(map(record_line, results))
    tell(Judged(assignment.number, lines, time.monotonic() - start, phases.taken()))


def _try(
    station: Station, tell: Callable[[Message], None], assignment: Assignment, step: Callable[[Assignment], None]
) -> None:
    """Calls `step(assignment)`. If the problem cannot be used, drops all its assignments and tells the driver so."""
    try:
        step(assignment)
    except ProblemUnusable as error:
        for each in (assignment, *station.drop(assignment.name)):
            tell(Unusable(each.number, str(error)))
