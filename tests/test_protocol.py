"""The judge's side of the channel when the other side lies, stalls or dies: always a verdict, and nothing left open."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_harness import channel, examine
from kernel_harness import problem as problems
from kernel_harness.cases import pack
from kernel_harness.channel import MAX_DESCRIPTORS, MAX_MESSAGE_BYTES, SharedBuffer
from kernel_harness.device.cpu import Emulated
from kernel_harness.errors import EnvironmentLacking
from kernel_harness.examine import Answer, Fault, Subject
from kernel_harness.process import Limits, Worker, WorkerCrashed, WorkerFailed
from kernel_harness.spawn import Template
from kernel_harness.status import Status
from kernel_harness.tensors import write
from kernel_harness.workshop import Workshop

PROBLEM = problems.load("product", ROOT / "tests" / "candidates" / "problem" / "product.py")


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# ------------------------------------------------------------------------------- whatever may be answered

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
MOVES = st.lists(
    st.tuples(st.just("bytes"), st.binary(min_size=1, max_size=40))
    | st.tuples(st.just("json"), JSON)
    | st.tuples(st.just("stale"), st.text(max_size=8))
    | st.tuples(st.just("answer"), JSON)
    | st.tuples(st.just("piecewise"), JSON)
    | st.tuples(st.just("long"), st.integers(MAX_MESSAGE_BYTES + 1, 2**32 - 1))
    | st.tuples(st.just("cut"), st.integers(1, 30))
    | st.tuples(st.just("descriptors"), st.integers(1, MAX_DESCRIPTORS + 4)),
    max_size=4,
)


def framed(value: Any) -> bytes:
    body = json.dumps(value).encode()
    return struct.pack("<I", len(body)) + body


class Adversary(threading.Thread):
    """The other side: it hears a question, does what it was told, and hangs up."""

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
            self._end.sendall(framed({"ok": {}, "number": what}))
        elif kind == "answer":
            self._end.sendall(framed({"ok": what, "number": number}))
        elif kind == "piecewise":
            for byte in framed({"ok": what, "number": number}):
                self._end.sendall(bytes([byte]))
        elif kind == "long":
            self._end.sendall(struct.pack("<I", what))
        elif kind == "cut":
            self._end.sendall(framed({"ok": {}, "number": number})[:what])
        else:
            socket.send_fds(self._end, [framed({"ok": {}, "number": number})], [0] * what)


class NoTemplate:
    """Of a worker that is no process: it left with 0."""

    def status_of(self, pid: int) -> int:
        return 0

    def bytes_in(self, pid: int, folder: Path) -> int:
        return 0


def worker_of(end: socket.socket, folder: Path) -> Worker:
    read, written = os.pipe()
    os.close(written)
    no_process = 1 << 23
    return Worker(NoTemplate(), no_process, no_process, end, read, folder, Limits())  # type: ignore[arg-type]


@settings(max_examples=200)
@given(MOVES)
def test_whatever_is_answered_the_judge_has_an_answer_to_its_question_or_a_failed_worker(moves):
    before = open_descriptors()
    ours, theirs = channel.pair()
    adversary = Adversary(theirs, moves)
    adversary.start()
    worker = worker_of(ours, Path("/nonexistent"))
    try:
        reply = worker.ask({"do": "anything"}, timeout_s=10)
        # Only an answer that came first, whole and with the question's number can be it.
        assert moves[0][0] in ("answer", "piecewise", "cut", "descriptors")
        assert "ok" in reply
    except WorkerFailed:
        assert not moves or moves[0][0] not in ("answer", "piecewise")
    finally:
        worker.close()
        adversary.join()
    assert open_descriptors() == before


# ------------------------------------------------------------------------------- dying, step by step


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    Emulated().prepare()
    with Template() as made:
        made.prepare("cpu")
        yield made


@pytest.fixture
def buffer() -> Iterator[tuple[Any, SharedBuffer]]:
    packed = pack(PROBLEM.inputs(1))
    made = SharedBuffer(packed.size)
    write(made.memory, packed.leaves, packed.tensors, packed.size)
    yield packed, made
    made.close()


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
from kernel_harness import channel
honest, sent = channel.Channel.send, []
def send(self, message, descriptors=(), timeout_s=None):
    sent.append(message)
    if %s:
        %s
    honest(self, message, descriptors, timeout_s)
channel.Channel.send = send
"""
HALF = "os.write(3, struct.pack('<I', 1000) + b'{\"ok\": '); os._exit(0)"

STEPS = {
    "while it is loaded": source(end=DIES),
    "when it asks for a build": source(top=ON_SEND % ("'build' in message", "os._exit(0)"), end=BUILD),
    "once it has asked for a build": source(
        top=ON_SEND % ("'build' in message", "honest(self, message); os._exit(0)"), end=BUILD
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
def test_a_worker_that_dies(text: str, template: Template, buffer: tuple[Any, SharedBuffer]) -> None:
    before = open_descriptors()
    subject = Subject(template, "cpu", Limits())
    with pytest.raises(Fault) as caught:
        subject.load("dies.py", text, "ModelNew")
        subject.make(PROBLEM)
        subject.call(*buffer)
        subject.ping()
    subject.close()

    assert caught.value.status is Status.CRASHED
    assert open_descriptors() == before


def test_a_worker_that_dies_before_anything_is_asked(template: Template) -> None:
    with template.spawn(Limits()) as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerCrashed, match="SIGKILL"):
            worker.ask({"do": "ping"}, timeout_s=30)


def test_a_builder_that_dies(template: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn: Callable[[Limits], Worker] = template.spawn
    subject = Subject(template, "cpu", Limits())

    def dying(limits: Limits) -> Worker:
        worker = spawn(limits)
        os.kill(worker.pid, signal.SIGKILL)
        return worker

    monkeypatch.setattr(template, "spawn", dying)
    with pytest.raises(Fault) as caught:
        subject.load("k.py", source(end=BUILD.replace("return 1", "return 2")), "ModelNew")
    subject.close()

    assert caught.value.status is Status.CRASHED


# ------------------------------------------------------------------------------------------- what it says

FORGES = """
from kernel_harness import channel
honest = channel.Channel.send
def send(self, message, descriptors=(), timeout_s=None):
    if 'clocked' in message.get('ok', {}):
        %s
    honest(self, message, descriptors, timeout_s)
channel.Channel.send = send
"""


def answered(template: Template, forged: str, buffer: tuple[Any, SharedBuffer]) -> Answer:
    subject = Subject(template, "cpu", Limits())
    try:
        subject.load("forges.py", source(top=FORGES % forged), "ModelNew")
        subject.make(PROBLEM)
        return subject.call(*buffer)
    finally:
        subject.close()


@pytest.mark.parametrize(
    ("name", "told"),
    [("device_ms", "5e-324"), ("device_ms", "1e308"), ("device_ms", "-1.0"), ("device_ms", "True"),
     ("peak_bytes", "10**400"), ("peak_bytes", "-1"), ("peak_bytes", "True")],
)  # fmt: skip
def test_a_number_that_cannot_be_is_none(
    name: str, told: str, template: Template, buffer: tuple[Any, SharedBuffer]
) -> None:
    """A table of them is worked with later: 10**400 is no float, and the logarithm of 5e-324 has no way back."""
    answer = answered(template, f"message['ok']['clocked']['{name}'] = {told}", buffer)

    assert getattr(answer.clocked, name) is None


def test_a_structure_that_is_too_long_is_none(template: Template, buffer: tuple[Any, SharedBuffer]) -> None:
    """Whole numbers that all hash to 0: a dictionary of them takes time in squares."""
    forged = "message['ok']['structure'] = {'dict': [[{'value': i * (2**61 - 1)}, {'value': 0}] for i in range(99999)]}"
    with pytest.raises(Fault, match="structure of more than 64 KiB"):
        answered(template, forged, buffer)


def test_what_is_shown_of_a_workers_words_is_short_and_moves_no_cursor(template: Template) -> None:
    words = "\x1b[2J\x1b]0;a title\x07" + 9 * "long "
    said = [f"raise ValueError({words!r} * 100000)", f"print({words!r} * 1000, flush=True); os._exit(1)"]
    for end in said:
        subject = Subject(template, "cpu", Limits())
        with pytest.raises(Fault) as caught:
            subject.load("shouts.py", source(top="import os", end=end), "ModelNew")
        subject.close()

        assert "long" in caught.value.reason
        assert len(caught.value.reason) < 30_000
        assert all(c == "\n" or c.isprintable() for c in caught.value.reason)


def test_a_candidate_builds_no_more_than_a_gigabyte(template: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "_MOST_BUILT_BYTES", 1000)
    again = BUILD.replace('"dies"', '"other"')
    subject = Subject(template, "cpu", Limits())
    with pytest.raises(Fault, match="builds more than") as caught:
        subject.load("k.py", source(end=BUILD + again), "ModelNew")
    subject.close()

    assert caught.value.status is Status.LOAD_ERROR


# ------------------------------------------------------------------------------------------- builds


@pytest.mark.parametrize("asked", [None, 1, {}, {"name": "x"}, {"name": ["x"], "cpp": 1}])
def test_a_build_asked_for_in_nonsense_is_refused(asked: Any, template: Template) -> None:
    answer, cached = Workshop(template, Emulated(), Limits()).build(asked, "k.py", "", 10)

    assert answer["error"]["kind"] == "build"
    assert not cached


class Forger:
    """A builder that answers what it likes."""

    def __init__(self, reply: Any, descriptors: list[int]) -> None:
        self._reply, self._descriptors = reply, descriptors

    def spawn(self, limits: Limits) -> Forger:
        return self

    def __enter__(self) -> Forger:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, message: Any, *, timeout_s: float, received: list[int]) -> Any:
        received += self._descriptors
        return self._reply


@pytest.mark.parametrize("name", ["../x.so", "/tmp/x.so", "x", "", None, 7, "x.so\n"])
def test_a_library_is_filed_under_no_name_that_leaves_its_folder(
    name: Any, stocked_cache: Path, tmp_path: Path
) -> None:
    descriptor = os.open(__file__, os.O_RDONLY)
    shop = Workshop(Forger({"ok": {"name": name}}, [descriptor]), Emulated(), Limits())  # type: ignore[arg-type]
    failed = False
    try:
        answer, _ = shop.build(asked_for("forged"), "k.py", "", 10)
        failed = "error" in answer
    except WorkerFailed:
        failed = True

    assert failed
    assert not list(tmp_path.glob("**/x.so"))


def test_what_is_no_plain_file_is_not_filed(stocked_cache: Path) -> None:
    shop = Workshop(Forger({"ok": {"name": "x.so"}}, [os.open("/dev/zero", os.O_RDONLY)]), Emulated(), Limits())  # type: ignore[arg-type]

    with pytest.raises(WorkerFailed, match="no library"):
        shop.build(asked_for("endless"), "k.py", "", 10)


def test_a_cache_that_cannot_be_written_is_the_machines_fault(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNEL_HARNESS_CACHE", str(tmp_path / "file"))

    with pytest.raises(EnvironmentLacking, match="KERNEL_HARNESS_CACHE"):
        Workshop(template, Emulated(), Limits()).build(asked_for("kept_nowhere"), "k.py", "", 10)


def asked_for(name: str) -> dict[str, Any]:
    return {
        "name": name, "cpp": "", "cuda": "", "functions": None, "cflags": [], "cuda_cflags": [], "ldflags": [],
        "include_paths": [], "error_handling": False, "with_cuda": None, "implicit_headers": True,
    }  # fmt: skip


# ----------------------------------------------------------------------------------- many candidates


def test_forty_candidates_in_one_run_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """More than are held at a time. `benchmarks/thousand.py` is the same with a thousand."""
    import tempfile

    from benchmarks import thousand

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, _, after, statuses = thousand.judge(40, tell=False)

    assert statuses == {"PASSED": 10, "WRONG_VALUES": 13, "WRONG_SHAPE": 5, "CRASHED": 4, "RUNTIME_ERROR": 8}
    assert thousand.left(before, after) == {}
