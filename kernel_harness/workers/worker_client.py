"""The judge's handle of a client, which is a worker process with one model class loaded."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import torch

from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.emulator.unsupported import reports_in
from kernel_harness import device as devices
from kernel_harness.core.paths import kernel_folders
from kernel_harness.core.phases import phase
from kernel_harness.core.status import Status
from kernel_harness.core.terminal import printable
from kernel_harness.device import Clocked, Steady
from kernel_harness.device.device_memory import CannotShare
from kernel_harness.ipc import build_messages, input_memory, messages, tensors
from kernel_harness.ipc.envelope import Received
from kernel_harness.ipc.input_memory import Written
from kernel_harness.ipc.messages import Done, Failure, InputLayout, Opening, Purpose
from kernel_harness.ipc.packed import Packed, pack
from kernel_harness.ipc.schema import Message
from kernel_harness.ipc.shared_memory import SharedBuffer
from kernel_harness.problem.problem import FORWARD_SEED, Problem
from kernel_harness.workers import failed_requests
from kernel_harness.workers.builder import BuildService
from kernel_harness.workers.candidate_builds import LEAST_WAIT_S, CandidateBuilds
from kernel_harness.workers.exchange import Exchange
from kernel_harness.workers.faults import Fault
from kernel_harness.workers.gated_call import Bracket, DeviceCall, GatedCall, HostCall, Timed
from kernel_harness.workers.output_reader import OutputReader
from kernel_harness.workers.process import Limits, Meanwhile, WorkerFactory

_MAX_SOURCE_CHARACTERS = 1 << 20
# The worker of a call on larger inputs makes ready before the hold: getting gigabytes of a GPU can take seconds.
_LARGE_BYTES = 1 << 28

R = TypeVar("R", bound=Message)


class RightOutputs(Protocol):
    """What is known about the right outputs of a problem (`checking.cases.Reference`)."""

    problem: Problem

    @property
    def keeps_state(self) -> bool:
        """Returns whether a call changes what the next call returns, so that each call needs a newly built model."""

    def output_bytes(self, problem: Problem) -> int | None:
        """Returns the bytes of all outputs at the sizes of `problem`; None if unknown."""

    def kept_outputs(self, problem: Problem) -> tuple[int, ...] | None:
        """Returns the indices of the outputs that a candidate may keep from call to call; None if unknown."""


@dataclass(frozen=True)
class Answer:
    """The output and the times of one call.

    `outputs` are copies in memory that the worker cannot reach. All are tensors without values on torch's "meta" device
    if they are far larger than right outputs or too large for the device. `structure` is the nesting of the output from
    `tensors.flatten_output`, and refers to `outputs` by index. `clocked` is the time and memory that the worker
    reports, and `launches` the number of kernels launched by the worker's count, or None if the device does not count.
    `timed` has the times by the judge's clock. For a call that does not begin at a gate, its bracket contains the
    writing of the inputs. `written` is what the judge found changed in the inputs, and beside them, when the call was
    done.
    """

    structure: Any
    outputs: tuple[torch.Tensor, ...]
    clocked: Clocked
    timed: Bracket
    launches: int | None = None
    written: Written = field(default_factory=Written)

    @property
    def exposed(self) -> bool:
        """Returns whether the call's time may contain launch latency, or not all of the call's work.

        The call was not enqueued, or the worker not ready, when the hold ended; or another process had the GPU before
        the inputs were there or before the outputs were copied.
        """
        return self.timed.exposed or self.clocked.exposed

    @property
    def nbytes(self) -> int:
        """Returns the number of bytes of the outputs and of the copies of changed inputs."""
        return self.written.nbytes + sum(int(output.nbytes) for output in self.outputs)

    @property
    def bare(self) -> Answer:
        """Returns the same answer without outputs, and without the copies of changed inputs."""
        return replace(self, outputs=(), written=replace(self.written, after={}))


class WorkerClient:
    """The judge's handle of a worker that holds one model class.

    Every method that sends a request to the worker raises Fault if the candidate fails. The constructor raises
    CannotStart if the worker cannot open the device. `right` is what is known about right outputs; None for a model
    whose outputs are not judged. `libraries` are those of `builds`.
    """

    def __init__(self, factory: WorkerFactory, device: str, limits: Limits) -> None:
        self.worker = factory.spawn(limits)
        self._device = devices.named(device)
        self._build_service = BuildService(factory, self._device, limits)
        self.builds = CandidateBuilds(self.worker, self._build_service)
        self.libraries = self.builds.libraries
        self._limits = limits
        self._end = math.inf
        self.file = CandidateFile("", "")  # the candidate's file, for messages
        self.closed = False
        self.right: RightOutputs | None = None
        self._made: tuple[Problem, str | None] | None = None  # the arguments of the last `make`
        self.was_called = False  # whether a call has followed it
        self._exchange = Exchange(self._device, lambda share, descriptors: self.ask(share, Done, descriptors))
        self.outputs = OutputReader(
            self._exchange, self._export, lambda: self.ask(messages.Fetch(), Done), limits.call_s
        )
        try:
            self.ask(messages.Start(self._device.name_in_workers, tuple(map(str, kernel_folders()))), Done)
            self._share()
        except BaseException:
            self.close()
            raise

    def end_within(self, seconds: float) -> None:
        """Limits all further requests together. After so many seconds, each raises Fault with the status TIMEOUT."""
        self._end = time.monotonic() + seconds - self._build_service.shared_s

    def _share(self) -> None:
        """Shares a gate and memory for outputs with the worker, before the worker loads a candidate.

        The memory is the device's if the worker can map it and its device can wait at the gate, else the host's. The
        emulated device needs no gate.
        """
        if not self._device.emulated:
            self._exchange.share_gate()
        try:
            self._exchange.reserve(Purpose.OUTPUTS, 1)
            self._exchange.take_turns()
        except (Fault, CannotShare) as error:
            if not self._exchange.on_device:
                raise
            self._device.cannot_share(error.reason if isinstance(error, Fault) else str(error))
            self._exchange.close()
            self._share()

    @property
    def renews_model(self) -> bool:
        """Returns whether each call gets a newly built model."""
        return self.right is not None and self.right.keeps_state

    def lacking(self) -> tuple[str, ...]:
        """Returns sentences on CUDA in the candidate's libraries that the emulation cannot run, if it was reached."""
        libraries = self.libraries if self._device.emulated else ()
        found = (sentence for library in libraries for sentence in reports_in(library))
        return tuple(dict.fromkeys(map(self.file.translated, found)))

    def load(self, file: str, source: str, name: str) -> None:
        """Executes the candidate's file, which builds its extensions, and looks up the class `name` in it.

        `source` is the text of `file`. Raises Fault if the file cannot be loaded.
        """
        self.file = CandidateFile(file, source)
        if len(json.dumps(source)) > _MAX_SOURCE_CHARACTERS:
            raise Fault(Status.LOAD_ERROR, f"{file} has {len(source) / 1e6:.1f} MB; at most 1 MB can be judged.")
        self.ask(messages.Load(file, source, name), Done, timeout_s=self._limits.build_s)

    def make(self, problem: Problem, *, compiled: str | None = None) -> bool:
        """Builds the model for the shape of `problem`. Returns False if the model has other parameters than `problem`.

        Also returns False if the constructor fails with random parameters. Returns True without a comparison if the
        parameters of `problem` are not random (`with_random_parameters`), and for the model of a `.cu` file, whose
        constructor receives the parameters. `compiled` is a mode of torch.compile, or None for a model that is not
        compiled. Raises Fault if the candidate fails.
        """
        self._made, self.was_called = (problem, compiled), False
        compared = problem.parameter_seed is not None and not self.file.name.endswith(".cu")
        names = problem.state_names if compared else ()
        sums = self._ask_for_model(problem, varied=compared, compiled=compiled, names=names)
        return (
            not compared or tensors.checksums(problem.state()).items() <= dict(zip(names, sums, strict=False)).items()
        )

    def differing_parameters(self, problem: Problem) -> tuple[str, ...]:
        """Builds the model again. Returns the names of the parameters of `problem` whose values its state dict lacks.

        The order of a parameter's values and the names in the model do not count. Raises Fault if the candidate fails.
        """
        own = self._ask_for_model(problem, varied=False, values=True)
        found = tensors.value_sums(problem.state()) if 0 < len(own) < messages.MOST_SUMS else {}
        return tuple(name for name, number in found.items() if number not in own)

    def _ask_for_model(
        self, problem: Problem, *, varied: bool, compiled: str | None = None, names: Sequence[str] = (),
        values: bool = False,
    ) -> tuple[int | None, ...]:  # fmt: skip
        packed = pack(problem.constructor_arguments(self.file.name), device="cpu")
        buffer = SharedBuffer(packed.size)
        try:
            input_memory.write(buffer.bytes, packed.leaves, packed.tensors)
            request = messages.Make(_layout(packed), problem.weight_seed, varied, compiled, tuple(names), values)
            # torch.compile, or a first build in __init__, counts as build time, not as call time.
            return self.ask(request, messages.Made, [buffer.descriptor], timeout_s=self._limits.build_s).sums
        finally:
            buffer.close()

    @phase("calls")
    def call(
        self, packed: Packed, *, poison: bool = False, timed: Timed | None = None, keep: bool = False,
        moved: bool = False, patience: float = 1,
    ) -> Answer:  # fmt: skip
        """Calls the model once on the inputs `packed`. Returns its output and times, and what it wrote to its inputs.

        - `poison`: device memory that the call allocates is first filled with NaN.
        - `timed`: how a timed call begins, or None for an untimed call.
        - `keep`: `warm` or `steady` may follow.
        - `moved`: memory that the call and later ones allocate is elsewhere on the device than that of calls before.
        - `patience`: the factor by which the time limit of a call is multiplied.

        Before the judge's bracket opens, the worker has made ready for the call. For a call that begins at the gate,
        the bracket opens when the judge has written the inputs to the shared memory. For any other call, it opens
        before the judge writes them. It closes when the judge has copied the outputs, or, if they stay in the GPU's
        memory, when the judge has the GPU for itself and copies them. Work that goes on after that changes no output.
        Raises Fault, or Refused if the candidate declines the shape, and torch.OutOfMemoryError if the device has too
        little memory for the inputs or outputs.
        """
        self._expect_outputs()
        self._device.release_unused()  # the worker's call may need what the judge keeps without use
        self._exchange.reserve(Purpose.INPUTS, packed.size)
        opening, held = self._opening(timed), timed is None or not timed.on_host
        prepare = messages.Prepare(
            _layout(packed), FORWARD_SEED, poison, timed is not None, held, opening, keep, moved, self.outputs.kept
        )
        limit_s = patience * self._limits.call_s
        if timed is not None and opening is not Opening.BEFORE:
            return self._gated_answer(packed, prepare, timed, limit_s)
        self.ask(prepare, Done)
        start = time.perf_counter()
        self._exchange.fill(packed)
        reply = self.ask(messages.Call(), messages.Called, timeout_s=limit_s)
        self.outputs.read(reply, packed)
        structure, outputs = self.outputs.take()
        bracket = Bracket((time.perf_counter() - start) * 1e3)
        written = self._exchange.written(packed)
        return Answer(structure, outputs, reply.time or Clocked(None), bracket, reply.launches, written)

    def _expect_outputs(self) -> None:
        """Makes ready for the outputs of a call. Builds the model again if a call has changed it (`renews_model`)."""
        if self.was_called and self._made and self.renews_model:
            problem, compiled = self._made
            self.make(problem, compiled=compiled)
        self.was_called = True
        if self.right is not None and self._made is not None:
            problem = self._made[0]
            self.outputs.right_bytes = self.right.output_bytes(problem)
            self.outputs.kept = self.right.kept_outputs(problem)

    def _gated_answer(self, packed: Packed, prepare: messages.Prepare, timed: Timed, limit_s: float) -> Answer:
        """Makes the call that `prepare` describes, which begins at the gate, and returns its answer."""
        self.outputs.reserve()
        request = messages.Call(prepare)
        if packed.size > _LARGE_BYTES:
            self.ask(prepare, Done)
            request = messages.Call()
        self.worker.look_for_escape()
        size, turn = self.outputs.landing_bytes, self._exchange.turn
        gated: GatedCall = (
            HostCall(self._exchange, packed, timed, size)
            if turn is None
            else DeviceCall(self._exchange, turn, packed, timed, size)
        )
        try:
            if isinstance(gated, DeviceCall) and timed.on_host:
                gated.expected = self.outputs.expect(packed, gated.copy)
            reply = self.ask(request, messages.Called, timeout_s=limit_s, meanwhile=gated)
            time = reply.time
            if isinstance(gated, DeviceCall):
                gated.named(self.outputs.place(reply, packed, gated.copy))
                if time is None:
                    time = self.ask(messages.Finish(), Clocked, timeout_s=limit_s)
            bracket, written = gated.finish(lambda: self.outputs.read(reply, packed, gated.copy))
        finally:
            gated.close()
        structure, outputs = self.outputs.take()
        return Answer(structure, outputs, time or Clocked(None), bracket, reply.launches, written)

    def _export(self, region: int, first: int, timeout_s: float) -> Received[messages.Exported]:
        """Asks the worker for access to a region of its device memory. The caller closes the descriptors."""
        request = messages.Export(region, first)
        with failed_requests.as_faults(request, self.file, self._device):
            received = self.worker.request(request, messages.Exported, timeout_s=timeout_s)
        if isinstance(received.message, messages.Exported):
            return Received(received.message, received.number, received.descriptors)
        received.close()
        raise tensors.Unreadable("the process gives no access to its memory")

    def _opening(self, timed: Timed | None) -> Opening:
        """Returns when the inputs of a call are in the shared memory. `timed` is None for an untimed call."""
        if timed is None or self._exchange.gate is None:
            return Opening.BEFORE
        return Opening.STREAM if self._exchange.on_device and not timed.on_host else Opening.HOST

    def release_large(self) -> None:
        """Releases large pieces of shared memory (`Exchange.release_large`). Raises Fault if the candidate fails."""
        self._exchange.release_large()

    def kernels(self, packed: Packed) -> messages.KernelTimes:
        """Calls the model once on a CUDA device. Returns names and times of its kernels, as the worker reports them.

        Raises Fault if the candidate fails, or Refused if it declines the shape.
        """
        self._exchange.reserve(Purpose.INPUTS, packed.size)
        self._exchange.fill(packed)
        return self.ask(messages.ListKernels(_layout(packed), FORWARD_SEED), messages.KernelTimes)

    def skip_kernels(self, skip: bool) -> None:
        """Makes later calls run without the candidate's kernels if `skip` is True, and with them if it is False.

        The other code of a call always runs. Only the emulated device can do this. Raises Fault if the candidate fails.
        """
        self.ask(messages.SkipKernels(skip), Done)

    def thin_grids(self) -> None:
        """Makes later launches run a 64th of their blocks in x. Only the emulated device can do this."""
        self.ask(messages.ThinGrids(), Done)

    def dry_run(self, packed: Packed) -> messages.DryRunEnded:
        """Runs the host code of one call on inputs with the shapes of `packed`, whose tensors may be without values.

        Returns which launch the device refuses, and the number of threads of the others. Only the emulated device can
        do this, and only `make` and `dry_run` may follow. Raises Fault or Refused if the candidate fails, and Fault
        also if the host code needs a value from the device's memory.
        """
        return self.ask(messages.DryRun(_layout(packed), FORWARD_SEED), messages.DryRunEnded)

    def warm(self, packed: Packed) -> tuple[Clocked, Written]:
        """Repeats the last call, which was made on the inputs `packed` with `keep`.

        Returns the time that the worker reports, and what the call and its repetition wrote to the inputs. The device's
        cache is not emptied before, so it may hold the inputs. Raises Fault if the candidate fails, or Refused if it
        declines the shape.
        """
        clocked = self.ask(messages.Repeat(), Clocked)
        return clocked, self._exchange.written(packed)

    def steady(self) -> Steady | None:
        """Replays the last call as a CUDA graph, and returns the times that the worker reports.

        The last call must have been made with `keep=True`. Returns None if the worker reports no times, as on a device
        without CUDA graphs. Raises Fault or Refused if the candidate fails, for example if the call cannot be captured.
        """
        return self.ask(messages.Replay(), messages.Replayed).steady

    def ping(self) -> None:
        """Resumes the worker if it is paused, and waits until it replies.

        Raises Fault if the worker has ended, or does not reply within the time limit of a call.
        """
        self.ask(messages.Ping(), Done)

    @phase("ending processes")
    def close(self) -> None:
        """Kills the worker and frees the memory that the judge shares with it. Safe to call twice."""
        self.worker.close()
        self._exchange.close()
        self.builds.close()
        self.closed = True

    def ask(
        self, request: Message, expected: type[R], descriptors: Sequence[int] = (), *,
        timeout_s: float | None = None, meanwhile: Meanwhile | None = None,
    ) -> R:  # fmt: skip
        """Sends `request` and returns the reply of the class `expected`. Does the builds that the worker asks for.

        The time limit `timeout_s` is in seconds; None is the limit of a call. The time in which the judge prepares what
        all candidates share does not count. `meanwhile` is called between the request and the reply. Raises Fault if
        the candidate fails, Refused if it declines the shape, and CannotStart if the worker cannot open the device.
        """
        if time.monotonic() > self._end + self._build_service.shared_s:
            raise Fault(Status.TIMEOUT, "The time for all calls of the worker is over.")
        limit_s = timeout_s or self._limits.call_s
        deadline = min(time.monotonic() + limit_s - self._build_service.shared_s, self._end)

        def left_s() -> float:
            return max(LEAST_WAIT_S, deadline + self._build_service.shared_s - time.monotonic())

        with failed_requests.as_faults(request, self.file, self._device):
            limited_s = min(limit_s, left_s())
            received = self.worker.request(request, expected, descriptors, timeout_s=limited_s, meanwhile=meanwhile)
            while isinstance(reply := received.taken(), build_messages.BuildWanted):
                answer = self.builds.build(reply.sources, left_s(), self.file)
                received = self.worker.request(answer, expected, timeout_s=left_s())
                self.builds.release_loaded()
        if isinstance(reply, Failure):
            raise failed_requests.reported(request, reply, self.file, self._device)
        return reply

    @property
    def printed(self) -> str:
        """Returns the end of what the candidate has printed so far, in Python and in kernels."""
        return failed_requests.PLACES.sub("", printable(self.file.translated(self.worker.output)))


def _layout(packed: Packed) -> InputLayout:
    return InputLayout(packed.structure, packed.leaves, packed.size)
