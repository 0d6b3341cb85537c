"""A device worker that judges nothing: the text of a candidate says what happens to it.

`pass S` passes with the speedup S, `wrong` fails, `die` ends this process, `die once PATH` ends it unless the file PATH
exists, which it then creates, `unusable` says that the problem cannot be used, `lacking` that this machine cannot
judge, `hold PATH` waits until the file PATH exists and passes, and `wait` waits until the driver ends the connection.
Each candidate that it begins is appended to the file `judged` beside the candidate's folder, as a line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kernel_harness.suite.device_worker import Began, Lacking, Message, Ready, Task, Unusable, Verdict, send

PHASES_S = {"calls": 0.25, "start": 0.5}


def main() -> None:
    driver = Connection(int(sys.argv[1]))
    driver.recv_bytes()  # the settings, whose module imports torch, which takes seconds
    send(driver, Ready("simulated", "Simulated device"))
    with suppress(EOFError, OSError):
        while True:
            task = driver.recv()
            send(driver, Began(task.id))
            with (task.candidate.path.parents[2] / "judged").open("a") as judged:
                judged.write("/".join(task.id) + "\n")
            while task.candidate.source.split() == ["wait"]:
                driver.recv()  # later tasks; as a real worker, it ends with the connection
            send(driver, _verdict(task))


def _verdict(task: Task) -> Message:
    match task.candidate.source.split():
        case ["die"]:
            sys.exit("the device's context is broken")
        case ["die", "once", path]:
            if not Path(path).exists():
                Path(path).touch()
                os._exit(3)
            return _judged(task, 1.0)
        case ["lacking"]:
            return Lacking("the machine has too little memory")
        case ["hold", path, *_]:
            while not Path(path).exists():
                time.sleep(0.01)
            return _judged(task, 1.0)
        case ["unusable", *_]:
            return Unusable(task.id, "the reference fails")
        case ["pass", speedup, *_]:
            return _judged(task, float(speedup))
    return _judged(task, None)


def _judged(task: Task, speedup: float | None) -> Verdict:
    """A verdict whose lines are written here, because `results.record` imports torch, too."""
    candidate = task.candidate
    own: dict[str, Any] = {"kernel": candidate.name, "status": "WRONG_VALUES", "source_sha256": candidate.sha256}
    if speedup is not None:
        interval = {"low": speedup * 0.9, "estimate": speedup, "high": speedup * 1.1}
        timing = {"samples_ms": [1.0], "rejected": [], "time": interval, "speedup": interval}
        own |= {"status": "PASSED", "timing": timing}
    baseline = {"kernel": "torch", "status": "PASSED", "source_sha256": "", "kind": "baseline"}
    shared = {"schema_version": 5, "verdict": "", "shape": {}, "settings": {"seed": 1}}
    return Verdict(task.id, tuple(json.dumps({**shared, **each}) for each in (own, baseline)), 0.5, PHASES_S)


if __name__ == "__main__":
    main()
