"""An evaluator process that judges nothing: the text of a candidate says what happens to it.

`pass S` passes with the speedup S, `wrong` fails, `die` ends this process, `die once PATH` ends it unless the file PATH
exists, which it then creates, `unusable` says that the problem cannot be used, and `wait` waits until the driver ends
the connection. Each candidate that it begins is appended to the file `judged` beside the candidate's folder, as a line.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from kernel_harness.problem.candidate import Candidate
from kernel_harness.suite import messages
from kernel_harness.suite.messages import Began, Finish, Judge, Judged, Message, Ready, Unusable

PHASES_S = {"calls": 0.25, "start": 0.5}


def main() -> None:
    end = socket.socket(fileno=int(sys.argv[1]))

    def tell(message: Message) -> None:
        end.sendall(messages.to_line(message))

    tell(Ready("simulated", "Simulated device"))
    with end.makefile("rb") as lines:
        for line in lines:
            request = messages.from_line(line)
            if isinstance(request, Finish):
                return
            assert isinstance(request, Judge)
            tell(Began(request.number))
            with (Path(request.path).parents[2] / "judged").open("a") as judged:
                judged.write(f"{request.problem}/{request.name}\n")
            if request.source.split() == ["wait"]:
                while end.recv(1 << 16):  # later tasks; as a real evaluator, it ends with the connection
                    pass
                return
            tell(_verdict(request))


def _verdict(request: Judge) -> Message:
    words = request.source.split()
    match words:
        case ["die"]:
            sys.exit("the device's context is broken")
        case ["die", "once", path]:
            if not Path(path).exists():
                Path(path).touch()
                os._exit(3)
            return _judged(request, 1.0)
        case ["unusable"]:
            return Unusable(request.number, "the reference fails")
        case ["pass", speedup, *_]:
            return _judged(request, float(speedup))
    return _judged(request, None)


def _judged(request: Judge, speedup: float | None) -> Judged:
    """A verdict whose lines are written here, because `results.record` imports torch, which takes seconds."""
    sha256 = Candidate(request.name, Path(request.path), request.source).sha256
    own: dict[str, Any] = {"kernel": request.name, "status": "WRONG_VALUES", "source_sha256": sha256}
    if speedup is not None:
        interval = {"low": speedup * 0.9, "estimate": speedup, "high": speedup * 1.1}
        timing = {"samples_ms": [1.0], "rejected": [], "time": interval, "speedup": interval}
        own |= {"status": "PASSED", "timing": timing}
    baseline = {"kernel": "torch", "status": "PASSED", "source_sha256": "", "kind": "baseline"}
    shared = {"schema_version": 4, "reason": "", "shape": {}, "settings": {"seed": 1}}
    return Judged(request.number, tuple(json.dumps({**shared, **each}) for each in (own, baseline)), 0.5, PHASES_S)


if __name__ == "__main__":
    main()
