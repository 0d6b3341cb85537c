"""Builds that workers ask for: each made by a worker of its own, behind the wall, and filed in the cache by the judge.

A candidate's compiler flags run code. Here they run beside nothing that could be harmed: what comes out is one file.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

from kernel_harness.build import cache, sources
from kernel_harness.build.sources import Sources
from kernel_harness.channel import Message
from kernel_harness.device import Device
from kernel_harness.errors import EnvironmentLacking
from kernel_harness.process import Limits, WorkerMisbehaved
from kernel_harness.spawn import Template

_LARGEST_LIBRARY = 1 << 30
_LIBRARY = re.compile(r"[A-Za-z_]\w{0,199}\.so", re.ASCII)


class Refused(Exception):
    """The build failed; `answer` is what the worker that asked for it is told."""

    def __init__(self, answer: Message) -> None:
        super().__init__("a build failed")
        self.answer = answer


class Workshop:
    """What builds for the candidate in `file`, whose text is `text`."""

    def __init__(self, template: Template, device: Device, limits: Limits) -> None:
        self._template, self._device, self._limits = template, device, limits

    def build(self, asked: Any, file: str, text: str, timeout_s: float) -> tuple[Message, bool]:
        """What the worker that asked is told, and whether the library was in the cache.

        Raises WorkerFailed where the build's own process gave no answer, EnvironmentLacking where nothing can be kept.
        """
        try:
            wanted = sources.from_json(asked)
            folder, cached = cache.get_or_build(
                f"{self._device.name.split(':')[0]}-extensions",
                self._device.build_key(wanted),
                lambda folder: self._into(folder, wanted, file, text, timeout_s),
            )
        except sources.Unreadable as error:
            return {"error": {"kind": "build", "message": f"load_inline: {error}.", "log": ""}}, False
        except Refused as refused:
            return refused.answer, False
        except OSError as error:
            raise EnvironmentLacking(
                f"The build cache in {cache.root()} cannot be used: {error}. Make room there, or name another folder "
                "in $KERNEL_HARNESS_CACHE."
            ) from None
        return {"library": str(next(folder.glob("*.so")))}, cached

    def _into(self, folder: Path, wanted: Sources, file: str, text: str, timeout_s: float) -> None:
        received: list[int] = []
        message = {
            "do": "build", "device": self._device.name, "sources": sources.to_json(wanted), "file": file, "text": text,
        }  # fmt: skip
        # In a long run what all builds share may have been evicted, and the one that builds may not write to the cache.
        self._device.prepare()
        try:
            with self._template.spawn(self._limits) as worker:
                reply = worker.ask(message, timeout_s=timeout_s, received=received)
            name = reply["ok"].get("name") if isinstance(reply.get("ok"), dict) else None
            if name is None:
                raise Refused(_failure(reply.get("error")))
            if not isinstance(name, str) or not _LIBRARY.fullmatch(name) or len(received) != 1:
                raise WorkerMisbehaved("The build's process answered with something that is no library.")
            _file(received[0], folder / name)
        finally:
            for descriptor in received:
                os.close(descriptor)


def _failure(error: Any) -> Message:
    """What went wrong, as data that any worker may be told."""
    found = error if isinstance(error, dict) else {}
    kind = found.get("kind") if found.get("kind") in ("build", "unsupported") else "build"
    text, log = (str(found.get(part, "")) for part in ("message", "log"))
    return {"error": {"kind": kind, "message": text or "The build gave no answer.", "log": log}}


def _file(descriptor: int, target: Path) -> None:
    """A copy of what the builder made, which is gone by now."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_LIBRARY:
        raise WorkerMisbehaved("The build's process answered with something that is no library.")
    with os.fdopen(os.dup(descriptor), "rb") as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)
