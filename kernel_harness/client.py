"""A client of a server that `serve` runs, with the methods of `EvaluatorPool`."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
import os
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kernel_harness.core.arms import BASELINE
from kernel_harness.core.closing import Closing
from kernel_harness.core.errors import EnvironmentLacking, NotFound, UserError
from kernel_harness.problem import lookup
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.errors import ProblemError
from kernel_harness.results.record import NotARecord, Result, from_line
from kernel_harness.results.reward import reward

TOKEN = "KERNEL_HARNESS_TOKEN"
"""The environment variable that has the token for a server."""
_ROOM = 128  # so many items of evaluate_many are with the server at the same time
_WAIT_S = 20.0
_ANSWER_S = 60.0
_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_AGAIN = (429, 502, 503, 504)

Problem = str | Path
Source = str | Path | Candidate


class Client(Closing):
    """Has kernels judged by the server at `url`, such as `http://127.0.0.1:8930`.

    All methods are safe to call from several threads. A request that a broken connection has interrupted is sent again
    for at most `patience_s` seconds, for example while the server is started again. No work is judged twice by this,
    because the server knows a work by the digest of problem, source and options. While the server's queue is full, the
    methods wait.

    Args:
        token: shown to the server; None takes it from the environment variable KERNEL_HARNESS_TOKEN.
        precision, timeout_s, budget_s, baseline, quick, sanitize: as for `EvaluatorPool`.

    Raises UserError for another kind of URL.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        precision: str | None = None,
        timeout_s: float = 60.0,
        budget_s: float | None = None,
        baseline: str = BASELINE,
        quick: bool = False,
        sanitize: bool = False,
        patience_s: float = 120.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise UserError(f"{url!r} is no server; write http://HOST:PORT or https://HOST")
        self._parts, self._patience_s = parts, patience_s
        self._token = os.environ.get(TOKEN) if token is None else token
        self._options = {
            "precision": precision, "timeout_s": timeout_s, "budget_s": budget_s, "baseline": baseline, "quick": quick,
            "sanitize": sanitize,
        }  # fmt: skip

    def close(self) -> None:
        """Does nothing: no connection is kept. A Client is a context manager like an EvaluatorPool."""

    def evaluate(self, problem: Problem, source: Source) -> Result:
        """Has one kernel judged and returns the result, which has no samples and no seed.

        `problem` is the name of a problem of the server, or the path of a problem file here, which is sent as text if
        the server accepts that. `source` is as for `kernel_harness.evaluate`. If there is a problem of that name here,
        the server's must be the same file.
        Raises ProblemError if the problem cannot be used, NotFound for a file or a problem that does not exist,
        EnvironmentLacking if the server cannot be reached, and UserError for what the server refuses.
        """
        job = self.submit(problem, source)
        while not _is_finished(job):
            job = self._ask("GET", f"/v1/jobs/{job['id']}?wait_s={_WAIT_S:g}")
        return _result(job)

    def reward(self, problem: Problem, source: Source) -> float:
        """Has one kernel judged and returns its reward (`results.reward.reward`). Raises what `evaluate` raises."""
        return reward(self.evaluate(problem, source))

    def evaluate_many(self, items: Iterable[tuple[Problem, Source]]) -> Iterator[tuple[int, Result]]:
        """Has kernels judged, given as pairs (problem, source). Yields (index of the item, result) as they are known.

        `items` is read only as far as needed. Raises what `evaluate` raises as soon as one item cannot be judged.
        """
        waiting: dict[str, list[int]] = {}
        unread = enumerate(items)
        while True:
            room = _ROOM - sum(map(len, waiting.values()))
            some = [*itertools.islice(unread, room)] if room > _ROOM // 2 else []
            for (index, _), job in zip(some, self._submit_all([item for _, item in some]), strict=True):
                waiting.setdefault(job["id"], []).append(index)
            if not waiting:
                return
            for job in self._ask("POST", "/v1/finished", {"ids": [*waiting], "wait_s": _WAIT_S})["jobs"]:
                for index in waiting.pop(job["id"]):
                    yield index, _result(job)

    def check(self) -> None:
        """Raises EnvironmentLacking if no server answers now. Other methods wait for one (`patience_s`)."""
        code, _, answer = self._send("GET", "/v1/jobs/0", None)
        if not code:
            raise EnvironmentLacking(
                f"no server answers at {self._parts.geturl()} ({answer['error']}); start one: python harness.py serve"
            )

    def submit(self, problem: Problem, source: Source) -> dict[str, Any]:
        """Submits one kernel and returns its job (`Status` in docs/service.md), which may be finished already."""
        return self._ask("POST", "/v1/jobs", self._submission(problem, source))

    def job(self, job_id: str) -> dict[str, Any]:
        """Returns a job: its state, how many jobs are ahead of it, and the estimated time to its verdict."""
        return self._ask("GET", f"/v1/jobs/{job_id}")

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Takes a job out of the server's queue and returns it. A verdict that is being judged is still stored."""
        return self._ask("DELETE", f"/v1/jobs/{job_id}")

    def _submission(self, problem: Problem, source: Source) -> dict[str, Any]:
        candidate = source if isinstance(source, Candidate) else lookup.source(source)
        typed, named = str(problem), dict[str, Any]()
        if Path(typed).suffix == ".py":
            path = lookup.existing_problem_path(typed, Path.cwd())
            named = {"problem_text": path.read_text(encoding="utf-8", errors="replace")}
        else:
            known = lookup.problem_path(typed, Path.cwd())
            named = {"problem": typed, "problem_sha256": known and hashlib.sha256(known.read_bytes()).hexdigest()}
        suffix = candidate.path.suffix
        return {**named, "source": candidate.source, "suffix": suffix, "options": self._options}

    def _submit_all(self, items: Sequence[tuple[Problem, Source]]) -> list[dict[str, Any]]:
        """Submits kernels in one request, and those again for which the server had no room."""
        wanted = [self._submission(*item) for item in items]
        jobs: dict[int, dict[str, Any]] = {}
        while left := [index for index in range(len(wanted)) if index not in jobs]:
            answer = self._ask("POST", "/v1/batches", {"submissions": [wanted[index] for index in left]})["jobs"]
            retry_s = 0
            for index, job in zip(left, answer, strict=True):
                if "id" in job:
                    jobs[index] = job
                elif job["retry_after_s"] is None:
                    raise UserError(f"the server refuses a kernel: {job['error']}")
                else:
                    retry_s = max(retry_s, job["retry_after_s"])
            time.sleep(retry_s)
        return [jobs[index] for index in range(len(wanted))]

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Sends one request, again if the connection breaks or the server has no room, and returns the answer.

        Every request may be sent again: the same submission is the same job.
        """
        end, attempts = time.monotonic() + self._patience_s, 0
        while True:
            code, headers, answer = self._send(method, path, body)
            if 200 <= code < 300:
                return answer
            if code and code not in _AGAIN:
                raise (NotFound if code == 404 else UserError)(f"the server refuses this: {answer.get('error')}")
            if code == 429:  # the server works, and has no room
                end = time.monotonic() + self._patience_s
            elif time.monotonic() > end:
                raise EnvironmentLacking(f"no answer from {self._parts.geturl()}: {answer.get('error')}")
            pause_s = _PAUSES_S[min(attempts, len(_PAUSES_S) - 1)]
            time.sleep(float(headers.get("Retry-After") or pause_s))
            attempts += 1

    def _send(self, method: str, path: str, body: object) -> tuple[int, Any, dict[str, Any]]:
        """Sends one request. Returns the code, the headers and the answer; the code 0 for a broken connection."""
        host, port = self._parts.hostname, self._parts.port
        assert host is not None
        made = (
            http.client.HTTPSConnection(host, port, timeout=_ANSWER_S, context=ssl.create_default_context())
            if self._parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=_ANSWER_S)
        )
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            with closing(made):  # redirects are not followed, so no other host sees the token
                data = None if body is None else json.dumps(body)
                made.request(method, self._parts.path.rstrip("/") + path, data, headers)
                answer = made.getresponse()
                return answer.status, answer.headers, _parsed(answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            return 0, {}, {"error": str(error) or type(error).__name__}


def _is_finished(job: dict[str, Any]) -> bool:
    return job["state"] not in ("queued", "running")


def _parsed(code: int, text: bytes) -> dict[str, Any]:
    """Returns the JSON object of an answer. One that is none, as of a proxy, becomes an error."""
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        if 200 <= code < 300:
            raise UserError("the server is not a kernel harness: it answers something else than JSON") from None
        return {"error": text.decode(errors="replace")[:200] or f"HTTP status {code}"}


def _result(job: dict[str, Any]) -> Result:
    if job["state"] == "failed":
        raise ProblemError(job["error"])
    if job["state"] != "done":
        raise UserError(f"the job {job['id']} was cancelled")
    try:
        return from_line(json.dumps(job["result"]))
    except NotARecord as error:
        raise UserError(f"the server has another version of the harness: its result is {error}") from None
