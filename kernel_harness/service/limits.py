"""Limits of requests: their size, and how long a client may take to send one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from kernel_harness.service.errors import Refused
from kernel_harness.service.tokens import owner_of


class LimitedBody:
    """Reads the body of each request before the application sees it.

    Answers 413 for a body of more than `most_bytes`, and 408 for one that has not arrived within `longest_s` seconds.
    Without one of the `tokens`, no body is read, so that strangers cannot fill the memory; the application refuses the
    request then.
    """

    def __init__(self, app: ASGIApp, tokens: Mapping[str, str], most_bytes: int, longest_s: float) -> None:
        self._app, self._tokens, self._most_bytes, self._longest_s = app, tokens, most_bytes, longest_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection or event of the ASGI server."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            owner_of(Headers(scope=scope).get("authorization"), self._tokens)
            async with asyncio.timeout(self._longest_s):
                body = await self._body(receive)
        except Refused:
            body = b""
        except TimeoutError:
            return await _refuse(scope, receive, send, 408, f"the body did not arrive within {self._longest_s:g} s")
        if body is None:
            return await _refuse(scope, receive, send, 413, f"a body may have {self._most_bytes} bytes at most")
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return first.pop() if first else await receive()

        return await self._app(scope, replayed, send)

    async def _body(self, receive: Receive) -> bytes | None:
        """Returns the body, or None as soon as it is too long."""
        parts, size = [], 0
        while True:
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most_bytes:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)


async def _refuse(scope: Scope, receive: Receive, send: Send, code: int, text: str) -> None:
    # The rest of the body is not read, so the connection cannot be used again.
    await JSONResponse({"error": text}, code, headers={"Connection": "close"})(scope, receive, send)


class LimitedConnection(H11Protocol):
    """A connection that is closed if no request begins or its header does not end within `LONGEST_HEADER_S`."""

    LONGEST_HEADER_S = 30.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to watch the connection."""
        super().connection_made(transport)
        self._watch(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the watch, which would keep the connection's memory until its next turn."""
        self._next_watch.cancel()
        super().connection_lost(exc)

    def _watch(self, before: object) -> None:
        """Closes the connection if no request has been answered since the last watch and none is being answered."""
        idle = self.cycle is None or self.cycle.response_complete
        if idle and before is (self.cycle or self):
            self.transport.close()
            return
        self._next_watch = self.loop.call_later(
            self.LONGEST_HEADER_S, self._watch, (self.cycle or self) if idle else None
        )
