"""The judge's side of the channel when a worker forges messages, stalls or dies: always a verdict, no leak."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.product import PROBLEM

from kernel_harness.core.codec import Malformed
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.ipc import build_messages, channel, messages, process_messages, schema
from kernel_harness.ipc.build_messages import Library
from kernel_harness.ipc.channel import MAX_DESCRIPTORS, MAX_MESSAGE_BYTES
from kernel_harness.ipc.envelope import Received
from kernel_harness.ipc.messages import Done, Failure, Ping, Stage
from kernel_harness.ipc.packed import Packed, pack
from kernel_harness.workers import candidate_builds, exchange, failed_requests
from kernel_harness.workers.builder import BuildService
from kernel_harness.workers.faults import Fault
from kernel_harness.workers.fork_server import ForkServer
from kernel_harness.workers.printed import Printed
from kernel_harness.workers.process import (
    Limits,
    WorkerCrashed,
    WorkerFailed,
    WorkerHandles,
    WorkerMisbehaved,
    WorkerProcess,
)
from kernel_harness.workers.worker_client import Answer, WorkerClient


def open_descriptors() -> int:
    gc.collect()  # closes those of objects that earlier tests have left in cycles
    return len(list(Path("/proc/self/fd").iterdir()))


# -------------------------------------------------------------------------------------- forged replies

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
MOVES = st.lists(
    st.tuples(st.just("bytes"), st.binary(min_size=1, max_size=40))
    | st.tuples(st.just("json"), JSON)
    | st.tuples(st.just("stale"), st.text(max_size=8))
    | st.tuples(st.just("nonsense"), JSON)
    | st.tuples(st.just("reply"), st.none())
    | st.tuples(st.just("piecewise"), st.none())
    | st.tuples(st.just("long"), st.integers(MAX_MESSAGE_BYTES + 1, 2**32 - 1))
    | st.tuples(st.just("cut"), st.integers(1, 30))
    | st.tuples(st.just("descriptors"), st.integers(1, MAX_DESCRIPTORS + 4)),
    max_size=4,
)


def framed(value: Any) -> bytes:
    body = json.dumps(value).encode()
    return struct.pack("<I", len(body)) + body


def done(number: str, body: Any = None) -> bytes:
    """The reply to a ping, or one with another body."""
    return framed({"kind": "Done", "number": number, "body": {} if body is None else body})


class Adversary(threading.Thread):
    """The other end of the channel: it reads one request, makes its moves, and closes the channel."""

    def __init__(self, end: socket.socket, moves: list[tuple[str, Any]]) -> None:
        super().__init__()
        self._end, self._moves = end, moves
        self.answered = False

    def run(self) -> None:
        with self._end, suppress(channel.Closed, BrokenPipeError, ConnectionResetError):
            number = channel.Channel(self._end).receive(10)[0]["number"]
            for kind, what in self._moves:
                self._move(kind, what, number)

    def _move(self, kind: str, what: Any, number: str) -> None:
        if kind == "bytes":
            self._end.sendall(what)
        elif kind == "json":
            self._end.sendall(framed(what))
        elif kind == "stale":
            self._end.sendall(done(what))
        elif kind == "nonsense":
            self._end.sendall(done(number, [what]))
        elif kind == "reply":
            self._end.sendall(done(number))
        elif kind == "piecewise":
            for byte in done(number):
                self._end.sendall(bytes([byte]))
        elif kind == "long":
            self._end.sendall(struct.pack("<I", what))
        elif kind == "cut":
            self._end.sendall(done(number)[:what])
        else:
            socket.send_fds(self._end, [done(number)], [0] * what)


class NoParent:
    """The parent of a worker that is no process: it has exited with 0."""

    def exit_status(self, pid: int) -> int:
        return 0

    def file_bytes(self, pid: int, folder: Path) -> int:
        return 0


def worker_of(end: socket.socket, folder: Path) -> WorkerProcess:
    read, written = os.pipe()
    os.close(written)
    no_process = 1 << 23
    return WorkerProcess(NoParent(), WorkerHandles(no_process, no_process, end, read, folder), Limits())


@pytest.mark.slow
@settings(max_examples=200)
@given(MOVES)
def test_any_forged_reply_is_the_reply_to_its_request_or_a_failed_worker(moves):
    before = open_descriptors()
    ours, theirs = channel.pair()
    adversary = Adversary(theirs, moves)
    adversary.start()
    worker = worker_of(ours, Path("/nonexistent"))
    try:
        reply = worker.request(Ping(), Done, timeout_s=10).taken()
        # Only a reply that came first, complete and with the request's number is accepted.
        assert moves[0][0] in ("reply", "piecewise", "cut", "descriptors")
        assert reply == Done()
    except WorkerFailed:
        assert not moves or moves[0][0] not in ("reply", "piecewise")
    finally:
        worker.close()
        adversary.join()
    assert open_descriptors() <= before  # garbage of other tests may close descriptors meanwhile


class Slow(threading.Thread):
    """The other end of a channel: it answers one request after half a second, byte by byte if `piecewise`."""

    def __init__(self, end: socket.socket, *, piecewise: bool) -> None:
        super().__init__()
        self._end, self._piecewise = end, piecewise

    def run(self) -> None:
        with self._end, suppress(BrokenPipeError, ConnectionResetError):
            reply = done(channel.Channel(self._end).receive(10)[0]["number"])
            if not self._piecewise:
                time.sleep(0.5)
                self._end.sendall(reply)
            for i in range(len(reply) if self._piecewise else 0):
                time.sleep(0.5 / len(reply))
                self._end.sendall(reply[i : i + 1])


@pytest.mark.parametrize("piecewise", [False, True])
def test_limits_are_checked_while_a_reply_arrives(piecewise: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[bool] = []
    monkeypatch.setattr(WorkerProcess, "_check_limits", lambda self: checks.append(True))
    ours, theirs = channel.pair()
    slow = Slow(theirs, piecewise=piecewise)
    slow.start()
    worker = worker_of(ours, Path("/nonexistent"))
    reply = worker.request(Ping(), Done, timeout_s=10).taken()
    worker.close()
    slow.join()

    assert reply == Done()
    assert len(checks) >= 3  # five, if this thread did not have to wait


def test_a_worker_that_has_closed_its_output_does_not_keep_the_judge_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its end, a pipe can always be read."""
    drained: list[bool] = []
    read = Printed.read
    monkeypatch.setattr(Printed, "read", lambda self: (drained.append(True), read(self))[1])
    ours, theirs = channel.pair()
    slow = Slow(theirs, piecewise=False)
    slow.start()
    worker = worker_of(ours, Path("/nonexistent"))
    worker.request(Ping(), Done, timeout_s=10).taken()
    worker.close()
    slow.join()

    assert len(drained) == 1


# --------------------------------------------------------------------------------------- forged messages

CALLED = {
    "structure": {"tensor": 0},
    "leaves": [{"dtype": "float32", "shape": [2], "stride": [1], "offset": 512, "storage": None}],
    "places": [{"region": 1, "offset": 8, "stride": [1]}],
    "regions": [1],
    "time": {"device_ms": 1.5, "exposed": False, "peak_bytes": 0},
    "launches": 1,
}
FAILURE = {"stage": "call", "type": "KeyError", "message": "x", "line": 3, "log": "", "refusal": False}
REPLIES = [kind for kind in schema.Message.__subclasses__() if kind.__module__ == messages.__name__]


@given(st.sampled_from(REPLIES), JSON | st.dictionaries(st.sampled_from(sorted({*CALLED, *FAILURE})), JSON))
def test_any_json_is_a_message_or_malformed(kind, data):
    with suppress(Malformed):
        assert isinstance(kind.from_json(data), kind)


@given(st.sampled_from(sorted(CALLED)), JSON)
def test_a_reply_with_any_field_replaced_is_a_reply_or_malformed(name, value):
    with suppress(Malformed):
        messages.Called.from_json({**CALLED, name: value})


@pytest.mark.parametrize(
    ("kind", "data", "changed"),
    [
        (messages.Called, CALLED, {"leaves": None}),
        (messages.Called, CALLED, {"leaves": CALLED["leaves"] * 257}),
        (messages.Called, CALLED, {"leaves": [{}]}),
        (messages.Called, CALLED, {"leaves": [{**CALLED["leaves"][0], "stride": [1 << 20]}]}),
        (messages.Called, CALLED, {"leaves": [{**CALLED["leaves"][0], "storage": 512}]}),
        (messages.Called, CALLED, {"leaves": [{**CALLED["leaves"][0], "storage": 0, "stride": [1 << 20]}]}),
        (messages.Called, CALLED, {"structure": "x" * (1 << 16)}),
        (messages.Called, CALLED, {"time": {"device_ms": 1.5}}),
        (messages.Called, CALLED, {"time": {"device_ms": 1.5, "exposed": 1, "peak_bytes": 0}}),
        (messages.Called, CALLED, {"extra": 1}),
        (Failure, FAILURE, {"stage": "elsewhere"}),
        (Failure, FAILURE, {"stage": []}),
        (Failure, FAILURE, {"message": 1}),
        (Failure, FAILURE, {"log": None}),
        (Failure, FAILURE, {"refusal": 1}),
        (messages.Steady, {"interval_ms": 1.0, "overhead_ms": 1.0}, {"interval_ms": float("nan")}),
        (messages.Steady, {"interval_ms": 1.0, "overhead_ms": 1.0}, {"overhead_ms": True}),
        (process_messages.Forked, {"pid": 1}, {"pid": True}),
        (process_messages.Forked, {"pid": 1}, {"pid": 1.0}),
        (Library, {"name": "x.so", "read": ["/x.h"]}, {"name": "x" * 251}),
        (Library, {"name": "x.so", "read": ["/x.h"]}, {"name": None}),
        (build_messages.BuildWanted, {"sources": 1}, {"cached": True}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)[:60]),
)
def test_a_field_of_the_wrong_type_or_length_is_malformed(kind: Any, data: Any, changed: Any) -> None:
    assert kind.from_json(data).to_json() == data
    with pytest.raises(Malformed, match=kind.__name__):
        kind.from_json({**data, **changed})


@pytest.mark.parametrize("name", sorted(CALLED))
def test_a_missing_field_is_malformed(name: str) -> None:
    with pytest.raises(Malformed):
        messages.Called.from_json({key: value for key, value in CALLED.items() if key != name})


def test_a_failures_texts_are_cut_and_its_line_is_a_line() -> None:
    forged = {**FAILURE, "message": "x" * 10**6, "log": "x" * 10**7, "type": "x" * 10**6, "line": -1}
    failure = Failure.from_json(forged)

    assert [len(text) for text in (failure.message, failure.log, failure.type)] == [20_000, 1 << 20, 100]
    assert failure.line is None


# ------------------------------------------------------------------------------- dying, step by step


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    Emulated().prepare()
    with ForkServer() as made:
        made.prepare("cpu")
        yield made


@pytest.fixture
def packed() -> Packed:
    return pack(PROBLEM.inputs(1))


GOOD = """import os
import signal
import torch

class ModelNew(torch.nn.Module):
{init}
    def forward(self, A, B):
        {forward}
"""


def source(*, top: str = "", init: str = "", forward: str = "return torch.matmul(A.T, B.T)", end: str = "") -> str:
    made = f"    def __init__(self):\n        super().__init__()\n        {init}\n" if init else ""
    return f"{top}\n{GOOD.format(init=made, forward=forward)}\n{end}\n"


DIES = "os.kill(os.getpid(), signal.SIGKILL)"
BUILD = """
from torch.utils.cpp_extension import load_inline
load_inline(name="dies", cpp_sources="int one() { return 1; }", functions=["one"])
"""
ON_SEND = """
import os, struct
from kernel_harness.ipc import channel
honest, sent = channel.Channel.send, []
def send(self, message, descriptors=(), timeout_s=None):
    sent.append(message)
    if %s:
        %s
    honest(self, message, descriptors, timeout_s)
channel.Channel.send = send
"""
HALF = "os.write(3, struct.pack('<I', 1000) + b'{\"kind\": '); os._exit(0)"

STEPS = {
    "while it is loaded": source(end=DIES),
    "when it asks for a build": source(top=ON_SEND % ("message['kind'] == 'BuildWanted'", "os._exit(0)"), end=BUILD),
    "once it has asked for a build": source(
        top=ON_SEND % ("message['kind'] == 'BuildWanted'", "honest(self, message); os._exit(0)"), end=BUILD
    ),
    "before it says that it is loaded": source(top=ON_SEND % ("len(sent) == 1", "os._exit(0)")),
    "in the middle of saying that it is loaded": source(top=ON_SEND % ("len(sent) == 1", HALF)),
    "while its model is made": source(init=DIES),
    "before it says that its model is made": source(top=ON_SEND % ("len(sent) == 2", "os._exit(0)")),
    "in the call": source(forward=DIES),
    "in the middle of its answer": source(top=ON_SEND % ("len(sent) == 3", HALF)),
    "once it has answered": source(top=ON_SEND % ("len(sent) == 3", "honest(self, message); os._exit(0)")),
    "when it is asked whether it runs": source(top=ON_SEND % ("len(sent) == 4", "os._exit(0)")),
}  # fmt: skip


@pytest.mark.parametrize("text", STEPS.values(), ids=STEPS.keys())
def test_a_worker_that_dies_has_crashed(text: str, fork_server: ForkServer, packed: Packed) -> None:
    before = open_descriptors()
    client = WorkerClient(fork_server, "cpu", Limits())
    with pytest.raises(Fault) as caught:
        client.load("dies.py", text, "ModelNew")
        client.make(PROBLEM)
        client.call(packed)
        client.ping()
    client.close()

    assert caught.value.status is Status.CRASHED
    assert open_descriptors() == before


def test_a_worker_that_dies_before_its_first_request_has_crashed(fork_server: ForkServer) -> None:
    with fork_server.spawn(Limits()) as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerCrashed, match="SIGKILL"):
            worker.request(Ping(), Done, timeout_s=30).taken()


def test_a_building_worker_that_dies_is_a_crash(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn: Callable[[Limits], WorkerProcess] = fork_server.spawn
    client = WorkerClient(fork_server, "cpu", Limits())

    def dying(limits: Limits) -> WorkerProcess:
        worker = spawn(limits)
        os.kill(worker.pid, signal.SIGKILL)
        return worker

    monkeypatch.setattr(fork_server, "spawn", dying)
    with pytest.raises(Fault) as caught:
        client.load("k.py", source(end=BUILD.replace("return 1", "return 2")), "ModelNew")
    client.close()

    assert caught.value.status is Status.CRASHED


# ------------------------------------------------------------------------------------ forged figures and texts

FORGES = """
from kernel_harness.ipc import channel
honest = channel.Channel.send
def send(self, message, descriptors=(), timeout_s=None):
    if message['kind'] == 'Called':
        %s
    honest(self, message, descriptors, timeout_s)
channel.Channel.send = send
"""


def answered(fork_server: ForkServer, forged: str, packed: Packed) -> Answer:
    client = WorkerClient(fork_server, "cpu", Limits())
    try:
        client.load("forges.py", source(top=FORGES % forged), "ModelNew")
        client.make(PROBLEM)
        return client.call(packed)
    finally:
        client.close()


@pytest.mark.parametrize(
    ("name", "told"),
    [("device_ms", "5e-324"), ("device_ms", "1e308"), ("device_ms", "-1.0"), ("device_ms", "True"),
     ("peak_bytes", "10**400"), ("peak_bytes", "-1"), ("peak_bytes", "True")],
)  # fmt: skip
def test_an_impossible_number_is_none(name: str, told: str, fork_server: ForkServer, packed: Packed) -> None:
    """Later statistics work with it: 10**400 is no float, and the logarithm of 5e-324 has no way back."""
    answer = answered(fork_server, f"message['body']['time']['{name}'] = {told}", packed)

    assert getattr(answer.clocked, name) is None


def test_a_structure_that_is_too_long_is_malformed(fork_server: ForkServer, packed: Packed) -> None:
    """Integers that all hash to 0: building a dictionary of them takes quadratic time."""
    forged = (
        "message['body']['structure'] = {'dict': [[{'value': i * (2**61 - 1)}, {'value': 0}] for i in range(99999)]}"
    )
    with pytest.raises(Fault, match="structure: more than 64 KiB"):
        answered(fork_server, forged, packed)


def test_texts_from_a_worker_are_cut_and_hold_no_control_characters(fork_server: ForkServer) -> None:
    words = "\x1b[2J\x1b]0;a title\x07" + 9 * "long "
    said = [f"raise ValueError({words!r} * 100000)", f"print({words!r} * 1000, flush=True); os._exit(1)"]
    for end in said:
        client = WorkerClient(fork_server, "cpu", Limits())
        with pytest.raises(Fault) as caught:
            client.load("shouts.py", source(top="import os", end=end), "ModelNew")
        client.close()

        assert "long" in caught.value.reason
        assert len(caught.value.reason) < 30_000
        assert all(c == "\n" or c.isprintable() for c in caught.value.reason)


def test_a_forged_structure_puts_no_control_characters_into_the_reason(fork_server: ForkServer, packed: Packed) -> None:
    with pytest.raises(Fault, match="not a structure") as caught:
        answered(fork_server, r"message['body']['structure'] = {'\x1b[2J\x1b]0;PASSED\x07': 0}", packed)

    assert caught.value.reason.isprintable()


def test_the_log_of_a_worker_that_died_has_no_control_characters(fork_server: ForkServer) -> None:
    client = WorkerClient(fork_server, "cpu", Limits())
    with pytest.raises(Fault) as caught:
        client.load("shouts.py", "import os\nprint('\x1b[2J' 'shouts', flush=True)\nos._exit(1)", "ModelNew")
    client.close()

    assert "shouts" in caught.value.log and "\x1b" not in caught.value.log


def test_an_output_counts_twice_as_shared_memory_and_as_the_judges_copy(
    fork_server: ForkServer, packed: Packed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge's reads take the memory that the worker left empty."""
    size = 64 << 20
    free = SimpleNamespace(available=3 * size)
    monkeypatch.setattr(exchange, "psutil", SimpleNamespace(virtual_memory=lambda: free))
    forged = f"message['body']['leaves'][0].update(shape=[{size // 4}], stride=[1])"
    assert answered(fork_server, forged, packed).outputs[0].nbytes == size

    free.available = size
    with pytest.raises(Fault, match="half of the free memory"):
        answered(fork_server, forged, packed)


def test_a_candidate_builds_no_more_than_a_gigabyte(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_builds, "_MAX_BUILT_BYTES", 1000)
    again = BUILD.replace('"dies"', '"other"')
    client = WorkerClient(fork_server, "cpu", Limits())
    with pytest.raises(Fault, match="builds more than") as caught:
        client.load("k.py", source(end=BUILD + again), "ModelNew")
    client.close()

    assert caught.value.status is Status.LOAD_ERROR


def test_a_library_that_is_asked_for_again_counts_once(
    fork_server: ForkServer, packed: Packed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel may call load_inline in each call."""
    monkeypatch.setattr(candidate_builds, "_MAX_BUILDS", 2)
    in_call = 'load_inline(name="dies", cpp_sources="int one() { return 1; }", functions=["one"])'
    text = source(top=BUILD, forward=f"{in_call}; return torch.matmul(A.T, B.T)")
    client = WorkerClient(fork_server, "cpu", Limits())
    client.load("k.py", text, "ModelNew")
    client.make(PROBLEM)
    for _ in range(3):
        client.call(packed)
    client.close()

    assert (len(client.builds.made), len(client.libraries)) == (1, 1)


def test_asking_for_a_library_again_without_end_is_a_timeout(fork_server: ForkServer) -> None:
    client = WorkerClient(fork_server, "cpu", Limits(build_s=2.0, call_s=2.0))
    asks = 'while True:\n    load_inline(name="dies", cpp_sources="int one() { return 1; }", functions=["one"])'
    with pytest.raises(Fault) as caught:
        client.load("k.py", source(top=BUILD, end=asks), "ModelNew")
    client.close()

    assert caught.value.status is Status.TIMEOUT


# ------------------------------------------------------------------------------------------- builds


@pytest.mark.parametrize("asked", [None, 1, {}, {"name": "x"}, {"name": ["x"], "cpp": 1}])
def test_a_build_asked_for_in_nonsense_is_refused(asked: Any, fork_server: ForkServer) -> None:
    result = BuildService(fork_server, Emulated(), Limits()).build(asked, 10)

    assert isinstance(result.answer, Failure)
    assert result.answer.stage is Stage.BUILD
    assert not result.cached


class Forger:
    """A factory whose workers claim to have built a library of this name, and to have read these files for it."""

    def __init__(self, name: Any, descriptors: list[int], read: Any = ()) -> None:
        self._name, self._descriptors, self._read = name, descriptors, list(read)

    def spawn(self, limits: Limits) -> Forger:
        return self

    def __enter__(self) -> Forger:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def request(self, request: Any, expected: type[Library], *, timeout_s: float) -> Received[Library]:
        try:
            return Received(expected.from_json({"name": self._name, "read": self._read}), "", self._descriptors)
        except Malformed as error:
            raise WorkerMisbehaved(str(error)) from None


def test_every_stage_that_a_candidate_can_forge_has_a_status() -> None:
    assert set(failed_requests._STATUS_OF_STAGE) == set(Stage) - {Stage.START}


class NeedsFullHeaders:
    """A factory whose workers ask for the precompiled full headers, and then report a failed build."""

    def __init__(self) -> None:
        self.requests = 0

    def spawn(self, limits: Limits) -> Forger:
        self.requests += 1
        stage = Stage.FULL_HEADERS if self.requests == 1 else Stage.BUILD
        return Answers(Failure(stage, type="", message="k.py:1: error", line=None, log="", refusal=False))


class Answers(Forger):
    """A worker that gives one reply."""

    def __init__(self, reply: Failure) -> None:
        self._reply = reply

    def request(self, request: Any, expected: type[Library], *, timeout_s: float) -> Received[Any]:
        return Received(self._reply, "", [])


def test_the_judge_prepares_the_full_headers_that_a_build_lacks_and_builds_again(
    stocked_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[bool] = []
    monkeypatch.setattr(Emulated, "prepare_full_headers", lambda _: prepared.append(True))
    factory = NeedsFullHeaders()
    result = BuildService(factory, Emulated(), Limits()).build(asked_for("fails"), 10)  # type: ignore[arg-type]

    assert isinstance(result.answer, Failure)
    assert (result.answer.stage, result.answer.message) == (Stage.BUILD, "k.py:1: error")
    assert (prepared, factory.requests) == ([True], 2)


class Fails:
    """A factory whose workers report a failed build. `type` is the type of the exception."""

    def __init__(self, type: str) -> None:
        self.type, self.requests = type, 0

    def spawn(self, limits: Limits) -> Forger:
        self.requests += 1
        return Answers(Failure(Stage.BUILD, type=self.type, message="", line=None, log="", refusal=False))


@pytest.mark.parametrize(("type", "builds"), [("CompilerFailed", 1), ("UnsupportedConstruct", 1), ("OSError", 2)])
def test_sources_that_cannot_be_built_are_compiled_once_for_each_candidate(
    type: str, builds: int, stocked_cache: Path
) -> None:
    """A full disk, which is an OSError, may have room again."""
    factory, failed = Fails(type), {}
    for _ in range(2):
        result = BuildService(factory, Emulated(), Limits()).build(asked_for("fails"), 10, failed)  # type: ignore[arg-type]
        assert isinstance(result.answer, Failure)

    assert factory.requests == builds
    BuildService(factory, Emulated(), Limits()).build(asked_for("fails"), 10, {})  # type: ignore[arg-type]
    assert factory.requests == builds + 1


@pytest.mark.parametrize("name", ["../x.so", "/tmp/x.so", "x", "", None, 7, "x.so\n"])
def test_a_library_with_a_name_that_leaves_its_folder_is_not_cached(
    name: Any, stocked_cache: Path, tmp_path: Path
) -> None:
    descriptor = os.open(__file__, os.O_RDONLY)
    service = BuildService(Forger(name, [descriptor]), Emulated(), Limits())  # type: ignore[arg-type]
    with pytest.raises(WorkerFailed):
        service.build(asked_for("forged"), 10)

    assert not list(tmp_path.glob("**/x.so"))


@pytest.mark.parametrize("path", ["/dev/zero", "/proc/self/status"])
def test_a_library_that_is_no_regular_file_is_not_cached(path: str, stocked_cache: Path) -> None:
    """The reader of a file of the Linux kernel, which has no size, may have to wait without end."""
    forger: Any = Forger("x.so", [os.open(path, os.O_RDONLY)])

    with pytest.raises(WorkerFailed, match="not a regular file"):
        BuildService(forger, Emulated(), Limits()).build(asked_for("endless"), 10)


@pytest.mark.parametrize("path", ["/sys/class/net/lo/speed", "/sys/class/net/lo/mtu"])
def test_a_library_that_cannot_be_read_to_its_end_is_a_fault_of_its_candidate(path: str, stocked_cache: Path) -> None:
    """Both have a size of 4096 bytes. The first cannot be read at all, the second is shorter."""
    forger: Any = Forger("x.so", [os.open(path, os.O_RDONLY)])

    with pytest.raises(WorkerMisbehaved, match="sent a library that"):
        BuildService(forger, Emulated(), Limits()).build(asked_for("unreadable"), 10)


@pytest.mark.parametrize("read", [["x"] * 6000, [7], ["x" * 5000], [["x"]]])
def test_a_malformed_list_of_files_that_a_build_has_read_is_refused(read: Any, stocked_cache: Path) -> None:
    forger: Any = Forger("x.so", [os.open(__file__, os.O_RDONLY)], read)
    with pytest.raises(WorkerFailed):
        BuildService(forger, Emulated(), Limits()).build(asked_for("forged"), 10)


def test_a_request_to_compile_names_nothing_of_the_candidate_but_its_sources() -> None:
    """The key of the build cache contains all that the building worker gets."""
    assert [field.name for field in fields(build_messages.Build)] == ["device", "sources"]


def test_a_cache_that_cannot_be_written_is_an_environment_error(
    fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNEL_HARNESS_CACHE", str(tmp_path / "file"))

    with pytest.raises(EnvironmentLacking, match="KERNEL_HARNESS_CACHE"):
        BuildService(fork_server, Emulated(), Limits()).build(asked_for("kept_nowhere"), 10)


def asked_for(name: str) -> dict[str, Any]:
    return {
        "name": name, "cpp": "", "cuda": "", "functions": None, "cflags": [], "cuda_cflags": [], "ldflags": [],
        "include_paths": [], "error_handling": False, "with_cuda": None, "implicit_headers": True,
    }  # fmt: skip


# ----------------------------------------------------------------------------------- many candidates


@pytest.mark.slow
def test_forty_candidates_in_one_run_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """More candidates than a run holds at a time; `python -m tests.support.many_candidates` judges a thousand."""
    import tempfile

    from support import many_candidates

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, _, after, statuses = many_candidates.judge(40, verbose=False)

    assert statuses == {"PASSED": 10, "WRONG_VALUES": 13, "WRONG_SHAPE": 5, "CRASHED": 4, "RUNTIME_ERROR": 8}
    assert many_candidates.left(before, after) == {}
