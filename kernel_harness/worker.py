"""The child's main: one candidate, loaded and called on request. Nothing here is trusted once it is imported."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernel_harness import build, channel, device, tensors
from kernel_harness.build.errors import BuildFailed, NoCompiler, UnsupportedConstruct
from kernel_harness.build.lines import mark
from kernel_harness.build.message import AuthorsFile, in_the_authors_words
from kernel_harness.build.sources import Sources, from_json, to_json
from kernel_harness.channel import Message
from kernel_harness.wall import probe

_LONGEST_TEXT = 20_000
# A compiler's first errors count, and a message takes no more: a character may take six bytes of it.
_LONGEST_LOG = 120_000
_WITHOUT_DEVICE = ("start", "build")


def main(end: channel.Channel) -> int:
    """Answers until the judge hangs up."""
    worker = Worker(end)
    answers: dict[str, Callable[[Message, list[int]], Message]] = {
        "start": worker.start,
        "load": worker.load,
        "make": worker.make,
        "receive": worker.receive,
        "call": worker.call,
        "sanitize": worker.sanitize,
        "kernels": worker.kernels,
        "warm": worker.warm,
        "steady": worker.steady,
        "build": worker.build,
        "profile": worker.profile,
        "probe": lambda message, descriptors: probe.attempt(message),
        "ping": lambda message, descriptors: {},
    }
    while True:
        try:
            message, descriptors = end.receive()
        except channel.Closed:
            return 0
        worker.number = message["number"]
        try:
            reply = {"ok": answers[message["do"]](message, descriptors)}
        except BaseException as error:
            reply = {"error": worker.explain(error)}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        end.send({**reply, "number": worker.number}, worker.results)
        worker.forget_results()


class Worker:
    """What the process holds: a device, one module, one model, one mapped output."""

    def __init__(self, end: channel.Channel) -> None:
        self._end, self._asking = end, threading.Lock()
        self.number = ""  # of the question that is being answered
        self.results: list[int] = []  # descriptors that go with the next reply
        self._file = ""
        self._device: device.Device
        self._stage = "start"
        self._launched: int | None = None
        self._model: Any = None
        self._class: Any = None
        self._last: Callable[[], Any] | None = None
        self._mapped: tuple[int, Any] = (-1, None)  # of what inputs were read from last: its inode, where it is mapped

    def start(self, message: Message, descriptors: list[int]) -> Message:
        """Opens the device and maps the memory outputs go to."""
        self._device = device.named(message["device"])
        self._output_size = message["output_size"]
        self._output = channel.map_shared(descriptors[0], self._output_size)
        sys.path[:0] = message["path"]
        self._device.open()
        return {}

    def load(self, message: Message, descriptors: list[int]) -> Message:
        """Runs the candidate's file; whatever it builds on import is built now."""
        self._stage = "load"
        self._file = message["file"]
        build.install(self._built_elsewhere, Path(self._file), message["source"])
        module = run_file(self._file, message["source"], build.as_module(self._file, message["source"]))
        self._class = getattr(module, message["class"], None)
        if self._class is None:
            raise AttributeError(f"{self._file} defines no {message['class']}; name the class {message['class']}")
        return {}

    def _built_elsewhere(self, sources: Sources, mark: Callable[[str], str]) -> tuple[Path, bool]:
        """Asks the judge, in the middle of a request of its own, for the library of some sources."""
        with self._asking:
            self._end.send({"build": to_json(sources), "number": self.number})
            answer, _ = self._end.receive()
            self.number = answer["number"]
        if "library" in answer:
            library = Path(answer["library"])
            self._device.built(library)
            return library, False
        error = answer["error"]
        raise (UnsupportedConstruct if error["kind"] == "unsupported" else BuildFailed)(error["message"], error["log"])

    def build(self, message: Message, descriptors: list[int]) -> Message:
        """Compiles some sources, for a worker that is elsewhere. The library goes with the reply."""
        self._stage = "build"
        folder = Path("build").absolute()
        folder.mkdir()
        sources = from_json(message["sources"])
        builder = device.named(message["device"])
        with in_the_authors_words(AuthorsFile(message["file"], message["text"])):
            builder.build(sources, lambda source: mark(source, message["text"], message["file"]), folder)
        library = next(folder.glob("*.so"))
        self.results.append(os.open(library, os.O_RDONLY | os.O_CLOEXEC))
        return {"name": library.name}

    def forget_results(self) -> None:
        """Once they are sent."""
        while self.results:
            os.close(self.results.pop())

    def make(self, message: Message, descriptors: list[int]) -> Message:
        """Builds the model from the init inputs, with the generator where the reference has it."""
        self._stage = "make"
        self._launched = self._device.launches()
        memory = channel.map_private(descriptors[0], message["size"])
        leaves = tensors.read_leaves(message["leaves"], message["size"])
        inputs = tensors.unflatten(message["structure"], [leaf.view(memory).clone() for leaf in leaves])
        self._model = None
        torch.manual_seed(message["seed"])
        with torch.no_grad():
            self._model = self._class(*inputs)
            if isinstance(self._model, torch.nn.Module):
                self._model = self._model.to(self._device.torch_device)
        if message["compile"]:
            self._model = torch.compile(self._model, mode=message["compile"])
        self._device.synchronize()
        return {}

    def receive(self, message: Message, descriptors: list[int]) -> Message:
        """Inputs that the next call brings the key to, where the device has memory of its own."""
        self._stage, self._last = "call", None
        self._device.receive(self._map(descriptors[0], message))
        return {}

    def call(self, message: Message, descriptors: list[int]) -> Message:
        """One forward on the bytes given, timed where a hold is told.

        They are written back where the judge wants to see what became of them.
        """
        placed, inputs = self._placed(message, descriptors)
        with torch.no_grad(), self._device.memory(poisoned=message["poison"]):
            output, clocked = self._timed(lambda: self._model(*inputs), message["hold"])
        self._last = (lambda: self._model(*inputs)) if message["keep"] else None
        structure, outputs = tensors.flatten(output)
        if len(outputs) > tensors.MAX_LEAVES:
            raise TypeError(f"the call returned {len(outputs)} tensors; at most {tensors.MAX_LEAVES} can be carried")
        described, size = tensors.layout(outputs)
        if size > self._output_size:
            raise ValueError(f"the outputs take {size} bytes; at most {self._output_size} are expected")
        self._device.fetch(outputs, described, self._output)
        if message["writable"]:
            placed.write_back()
        leaves_told = [leaf.to_json() for leaf in described]
        return {"structure": structure, "leaves": leaves_told, "clocked": vars(clocked), "launches": self._since()}

    def kernels(self, message: Message, descriptors: list[int]) -> Message:
        """What one forward on the bytes given launches, by name, where only a profiler can tell."""
        _, inputs = self._placed(message, descriptors)
        with torch.no_grad():
            return {"kernels": self._device.kernels(lambda: self._model(*inputs))}  # type: ignore[attr-defined]

    def _placed(self, message: Message, descriptors: list[int]) -> tuple[device.Placed, Any]:
        """What a call begins with: its inputs on the device, the generator as the reference has it."""
        self._stage, self._last = "call", None
        memory = self._map(descriptors[0], message)
        leaves = tensors.read_leaves(message["leaves"], message["size"])
        placed = self._device.place(memory, leaves, message["key"])
        torch.manual_seed(message["seed"])
        self._launched = self._device.launches()
        return placed, tensors.unflatten(message["structure"], placed.tensors)

    def _since(self) -> int | None:
        """Kernels launched since the last request began."""
        now = self._launches()
        return None if now is None or self._launched is None else now - self._launched

    def _map(self, descriptor: int, message: Message) -> Any:
        if message["writable"]:
            return channel.map_shared(descriptor, message["size"])
        if self._device.in_place:
            return channel.map_private(descriptor, message["size"])
        inode = os.fstat(descriptor).st_ino
        if self._mapped[0] != inode:
            self._mapped = inode, channel.map_read_only(descriptor, os.fstat(descriptor).st_size)
        return self._mapped[1]

    def warm(self, message: Message, descriptors: list[int]) -> Message:
        """The last call once more, on inputs that it has just read."""
        with torch.no_grad():
            return {"clocked": vars(self._device.timed(self._kept(), hold=message["hold"], cold=False)[1])}

    def steady(self, message: Message, descriptors: list[int]) -> Message:
        """The last call, replayed as a graph."""
        with torch.no_grad():
            steady = self._device.steady(self._kept())
        return {"steady": steady and vars(steady)}

    def _timed(self, call: Callable[[], Any], hold: int | None) -> tuple[Any, device.Clocked]:
        if hold is not None:
            return self._device.timed(call, hold=hold, cold=True)
        result = call()
        self._device.synchronize()
        return result, device.Clocked(None)

    def _kept(self) -> Callable[[], Any]:
        if self._last is None:
            raise RuntimeError("no call was kept")
        return self._last

    def profile(self, message: Message, descriptors: list[int]) -> Message:
        """A step that only a profiling device knows."""
        answer: Message = self._device.profile(message["step"])  # type: ignore[attr-defined]
        return answer

    def sanitize(self, message: Message, descriptors: list[int]) -> Message:
        """A step that only the sanitizing device knows."""
        answer: Message = self._device.sanitize(message)  # type: ignore[attr-defined]
        return answer

    def _launches(self) -> int | None:
        return None if self._stage in _WITHOUT_DEVICE else self._device.launches()

    def explain(self, error: BaseException) -> Message:
        """An exception as data: its kind, its words, and the candidate's line it came from."""
        if isinstance(error, UnsupportedConstruct):
            kind = "unsupported"
        elif isinstance(error, (BuildFailed, NoCompiler)):
            kind = "build"
        else:
            kind = self._stage
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == self._file]
        line = frames[-1].lineno if frames else None
        if isinstance(error, SyntaxError) and error.filename == self._file:
            line = error.lineno
        log = getattr(error, "log", "")[:_LONGEST_LOG] or "".join(traceback.format_exception(error))[-_LONGEST_TEXT:]
        healthy = True
        try:
            if self._stage not in _WITHOUT_DEVICE:
                self._device.synchronize()
        except Exception:
            healthy = False
        return {
            "kind": kind,
            "type": type(error).__name__,
            "message": str(error)[:_LONGEST_TEXT],
            "line": line,
            "log": log,
            "refusal": healthy and _is_refusal(error) and self._launches() == self._launched,
        }


def _is_refusal(error: BaseException) -> bool:
    """The ways a kernel may decline a shape: ValueError, NotImplementedError, or a TORCH_CHECK (a RuntimeError)."""
    if isinstance(error, (ValueError, NotImplementedError)):
        return True
    if isinstance(error, torch.OutOfMemoryError):
        return False
    return isinstance(error, RuntimeError) and not str(error).startswith("CUDA error")


def run_file(file: str, source: str, text: str) -> ModuleType:
    """A module of its own for the candidate, known to `inspect` and to tracebacks by its real file."""
    import linecache

    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    spec = importlib.util.spec_from_loader("candidate", loader=None, origin=file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = file
    sys.modules["candidate"] = module
    exec(compile(text, file, "exec"), module.__dict__)
    return module
