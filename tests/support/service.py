"""A server of the verb `serve` as a process of its own, and requests to it as any program could send them."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_harness.client import Client

from .command import ROOT, until

SIMULATED = (str(Path(__file__).with_name("simulated_service.py")),)
REAL = ("-m", "kernel_harness", "serve", "--device", "cpu")


class Server:
    """A server that can be killed and started again in the same folder on the same port."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        program: Sequence[str] = SIMULATED,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # The simulated worker writes the file `judged` two folders above that of a candidate.
        self.here, self.judged_file = folder / "above" / "here", folder / "judged"
        (self.here / "problems").mkdir(parents=True, exist_ok=True)
        for name in ("p", "q"):
            (self.here / "problems" / f"{name}.py").write_text(f"# {name}\n")
        self.arguments, self.port, self.errors = [*program, "--jobs", "1", *arguments], 0, folder / "errors"
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self.launch()
        until(lambda: self._port() or self.process.poll() is not None, "the server listens")  # type: ignore[union-attr]
        assert self._port(), self.errors.read_text()
        self.port = self._port()

    def launch(self) -> subprocess.Popen[bytes]:
        """Starts the process, and does not wait until it listens."""
        with self.errors.open("wb") as errors:
            words = [sys.executable, *self.arguments, "--port", str(self.port)]
            self.process = subprocess.Popen(words, cwd=self.here, env=self.environment, stderr=errors)
        return self.process

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def terminate(self) -> None:
        assert self.process is not None
        self.process.terminate()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def judged(self) -> int:
        """How many candidates the simulated workers have begun to judge."""
        return len(self.judged_file.read_text().splitlines()) if self.judged_file.exists() else 0

    def client(self, **options: Any) -> Client:
        return Client(self.url, **options)

    def ask(
        self, method: str, path: str, body: object = None, *, token: str = "", headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        """The code, the headers by lower-case name, and the parsed answer. A body of bytes is sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        all_headers = {"Content-Type": "application/json", **(headers or {})}
        if token:
            all_headers["Authorization"] = f"Bearer {token}"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, all_headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        is_json = (answer.headers.get("Content-Type") or "").startswith("application/json")
        found = {name.lower(): value for name, value in answer.headers.items()}
        return answer.status, found, json.loads(text) if is_json else text.decode()

    def submit(self, source: str, problem: str = "p", **more: Any) -> dict[str, Any]:
        code, _, answer = self.ask("POST", "/v1/jobs", {"problem": problem, "source": source}, **more)
        assert code in (200, 202), answer
        return dict(answer)

    def state(self, job_id: str, **more: Any) -> str:
        return str(self.ask("GET", f"/v1/jobs/{job_id}", **more)[2]["state"])

    def done(self, job_id: str, **more: Any) -> dict[str, Any]:
        """The job when it is finished."""
        while True:
            code, _, job = self.ask("GET", f"/v1/jobs/{job_id}?wait_s=20", **more)
            assert code == 200, job
            if job["state"] not in ("queued", "running"):
                return dict(job)

    def _port(self) -> int:
        found = re.search(r"listening on http://[^:]+:(\d+)", self.errors.read_text())
        return int(found[1]) if found else 0
