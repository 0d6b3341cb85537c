"""Runs the service: one socket, one event loop, and an end that loses no verdict."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import uvicorn

from kernel_harness.core.errors import UserError
from kernel_harness.service.app import app
from kernel_harness.service.limits import LimitedConnection
from kernel_harness.service.service import Judge, Limits, Service
from kernel_harness.service.store import Store

_MOST_CONNECTIONS = 2000
_LONGEST_ANSWER_S = 3


@dataclass(frozen=True)
class Serving:
    """What a server serves."""

    store: Store
    judge: Judge
    label: str
    """The name of the device's folder of results, which is a part of the key of each verdict."""
    folder: Path
    """The folder for files of problems."""
    tokens: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    most_bytes: int = 16 << 20
    longest_body_s: float = 30.0
    drain_s: float = 600.0
    """After this time a draining server ends; what is being judged then is judged again after the next start."""


def listening(host: str, port: int, *, has_tokens: bool) -> socket.socket:
    """Returns a socket that listens. Raises UserError if that fails, or for other machines without tokens."""
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not has_tokens and not ipaddress.ip_address(address[4][0]).is_loopback:
            raise UserError(
                f"without tokens the server listens on this machine only, not on {host}; give --tokens FILE"
            )
        return socket.create_server(address[4][:2], family=address[0], backlog=1024)
    except OSError as error:
        raise UserError(f"the server cannot listen on {host}:{port}: {error.strerror or error}") from None


def serve(serving: Serving, listener: socket.socket) -> None:
    """Answers requests until SIGTERM or SIGINT, and until all verdicts that are being judged are stored.

    The second signal ends the server at once. Raises the error that the judge failed with, if it failed.
    """
    asyncio.run(_serve(serving, listener))


async def _serve(serving: Serving, listener: socket.socket) -> None:
    service = Service(serving.store, serving.judge, serving.label, serving.folder, serving.limits)
    made = app(service, serving.tokens, most_bytes=serving.most_bytes, longest_body_s=serving.longest_body_s)
    config = uvicorn.Config(
        made, http=LimitedConnection, ws="none", lifespan="off", log_level="warning", access_log=False,
        server_header=False, limit_concurrency=_MOST_CONNECTIONS, timeout_graceful_shutdown=_LONGEST_ANSWER_S,
    )  # fmt: skip
    loop = asyncio.get_running_loop()
    server = _Server(config, lambda: loop.call_soon_threadsafe(service.drain))
    host, port = listener.getsockname()[:2]
    print(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}", file=sys.stderr, flush=True)
    ending = asyncio.create_task(_end_when_idle(server, service, serving.drain_s))
    await server.serve([listener])
    ending.cancel()
    if service.failure is not None:
        raise service.failure


async def _end_when_idle(server: uvicorn.Server, service: Service, drain_s: float) -> None:
    await service.ending.wait()
    with suppress(TimeoutError):
        await asyncio.wait_for(service.idle.wait(), drain_s)
    server.should_exit = True


class _Server(uvicorn.Server):
    """A server that drains at the first signal."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], object]) -> None:
        super().__init__(config)
        self._drain = drain
        self._signals = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles SIGTERM and SIGINT."""
        self._signals += 1
        if self._signals == 1:
            print("draining: what is being judged ends, and no new work begins", file=sys.stderr, flush=True)
            self._drain()
        else:
            self.should_exit = self.force_exit = True
