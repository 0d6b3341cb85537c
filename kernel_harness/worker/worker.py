"""The main program of a worker process. On request, it loads one candidate and calls the candidate's model.

A worker without a candidate makes one build, or probes the wall. After the candidate is loaded, the judge trusts
nothing that this process sends.
"""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

import torch

from cuda_on_cpu.compile import load_inline
from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.compile.sources import Sources, to_json
from kernel_harness import device
from kernel_harness.ipc import build_messages, channel, envelope, messages, process_messages, shared_memory, tensors
from kernel_harness.ipc.build_messages import BuildWanted, Built
from kernel_harness.ipc.gate import Gate
from kernel_harness.ipc.messages import Done, Failure, InputLayout, Opening, Purpose, Stage
from kernel_harness.ipc.schema import Message
from kernel_harness.sandbox import probe
from kernel_harness.worker import builds, candidate_module, failure, model, where
from kernel_harness.worker.outputs import Outputs

_NOTHING = torch.empty(0, dtype=torch.uint8)
_STAGES_WITHOUT_DEVICE = (Stage.START, Stage.BUILD)


def main(end: channel.Channel) -> int:
    """Replies to the judge's requests until the judge closes its end of the channel `end`. Returns the exit code 0."""
    with suppress(channel.Closed):
        Worker(end).serve(tuple(_HANDLERS))
    return 0


class Worker:
    """The state of a worker process: its device, its candidate's class and model, and the shared memory that it maps.

    Each method with a parameter `request` carries out the requests of this type, which say what it does, and returns
    the reply. An `assert` on the device holds because the judge sends such a request to such devices only.
    """

    def __init__(self, end: channel.Channel) -> None:
        self._end, self._asking = end, threading.Lock()
        self.number = ""  # of the request in progress
        self._sent: list[int] = []  # descriptors that came with this request
        self._results: list[int] = []  # descriptors to send with the next reply
        self._file = CandidateFile("", "")
        self._device: device.WorkerDevice
        self._stage = Stage.START
        self._launches_before: int | None = None
        self._model: Any = None
        self._class: Any = None
        self._last: tuple[Callable[[], Any], device.Placed] | None = None  # the kept call, and its inputs
        self._prepared: messages.Prepare | None = None
        self._input_count = 0  # of the last call
        self._shared: dict[messages.Purpose, torch.Tensor] = {}
        self._gate: Gate | None = None
        self._hold: device.Hold | None = None  # that the gate ends
        self._kept: tuple[int, ...] | None = None  # `Prepare.kept` of the last call
        self._outputs: Outputs

    def serve(self, kinds: tuple[type[Message], ...]) -> None:
        """Carries out requests of these kinds, until one is Finish. Raises Closed when the judge closes the channel."""
        while True:
            received = envelope.receive(self._end, kinds)
            self.number = received.number
            try:
                if isinstance(received.message, messages.Finish):
                    return
                self._sent = received.descriptors
                reply = _HANDLERS[type(received.message)](self, received.message)
            except channel.Closed:
                raise
            except BaseException as error:
                reply = self._failure(error)
            finally:
                received.close()
            self._reply(reply)

    def _reply(self, reply: Message) -> None:
        envelope.send(self._end, reply, self.number, self._results)
        while self._results:
            os.close(self._results.pop())

    def _ping(self, request: messages.Ping) -> Done:
        return Done()

    def _probe(self, request: process_messages.Probe) -> process_messages.Probed:
        return probe.attempt(request)

    def _start(self, request: messages.Start) -> Done:
        where.install()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        self._device = device.named(request.device)
        self._outputs = Outputs(self._device)
        sys.path[:0] = request.import_path
        self._device.open()
        return Done()

    def _share(self, request: messages.Share) -> Done:
        """Maps the judge's memory for `request.purpose`: inputs, outputs or the gate.

        First unmaps the earlier memory for the same purpose. If `request.size` is 0, only unmaps. Returns Done. Raises
        CannotShare if memory of the device cannot be mapped, or if the device cannot wait at the gate.
        """
        self._stage = Stage.CALL
        if request.purpose is Purpose.INPUTS:
            self._last = None  # the call that it repeats reads these inputs
        unmapped = self._shared.pop(request.purpose, _NOTHING).numel()
        if not request.size:
            self._outputs.clear()
            if not self._device.has_free(device.ROOM * unmapped):
                gc.collect()  # cycles of objects may hold large tensors
            self._device.release_unused()
        else:
            mapped = self._device.map(self._sent[0], request.size, on_device=request.on_device)
            self._shared[request.purpose] = mapped
            if request.purpose is Purpose.GATE:
                self._gate, self._hold = Gate(mapped), None
            elif request.on_device and self._hold is None and self._gate is not None:
                assert isinstance(self._device, device.TakesTurns)
                self._hold = self._device.hold_at(self._gate, self._name_outputs)
                self._outputs.exports = self._device.exports()
        self._outputs.inputs, self._outputs.memory = map(self._shared.get, (Purpose.INPUTS, Purpose.OUTPUTS))
        return Done()

    def _load(self, request: messages.Load) -> Done:
        """Executes the candidate's file and keeps the model's class, which later requests use. Returns Done.

        The execution builds the candidate's extensions. `request` has the text of the file and the name of the class.
        Raises AttributeError if the file does not define the class, and any exception that the file raises.
        """
        self._stage = Stage.LOAD
        file = request.file
        self._file = CandidateFile(file, request.source)
        if isinstance(self._device, device.Sanitizes):
            self._device.begin_sanitizing(self._file)
        load_inline.install(self._build_in_judge, self._file)
        module = candidate_module.run(file, request.source)
        self._class = getattr(module, request.class_name, None)
        if self._class is None:
            raise AttributeError(f"{file} defines no {request.class_name}; name the class {request.class_name}")
        return Done()

    def _build_in_judge(self, sources: Sources) -> tuple[Path, bool]:
        """Asks the judge for a library built from `sources`, while this worker carries out a request from the judge.

        Returns the library's path and False. In place of False, other builders return whether the build cache held the
        library, but here only the judge knows that. Raises BuildFailed if the build fails (`builds.library_in`).
        """
        with self._asking:
            kinds: tuple[type[Built | Failure], ...] = (Built, Failure)
            envelope.send(self._end, BuildWanted(to_json(sources)), self.number)
            received = envelope.receive(self._end, kinds)
            self.number = received.number
        library = builds.library_in(received.message)
        self._device.built(library)
        return library, False

    def _build(self, request: build_messages.Build) -> build_messages.Library:
        """Compiles sources that another worker asked for (`builds.made`). The library's descriptor goes with it."""
        self._stage = Stage.BUILD
        library, descriptor = builds.made(request)
        self._results.append(descriptor)
        return library

    def _make(self, request: messages.Make) -> messages.Made:
        """Builds the model (`model.built`), which later calls use."""
        self._stage, self._model = Stage.MAKE, None
        memory = shared_memory.map_shared(self._sent[0], request.inputs.size)
        self._model, made = model.built(self._class, request, memory, self._device)
        return made

    def _prepare(self, request: messages.Prepare) -> Done:
        """Stores `request` for the next call, drops the last call, and seeds torch's generator with `request.seed`.

        The judge seeds the generator for the reference's call with the same seed. A timed call finds the memory that an
        earlier one needed.
        """
        self._stage, self._last, self._prepared = Stage.CALL, None, request
        self._outputs.drop()
        if request.timed:
            self._device.reserve()
        torch.manual_seed(request.seed)
        return Done()

    def _call(self, request: messages.Call) -> messages.Called | device.Clocked:
        """Calls the model once. The judge gets the outputs as `Outputs` says.

        `request.prepare`, or the last `Prepare`, describes the call. The inputs are in the shared memory for inputs
        afterwards, where the judge looks for changes. If the device's stream waits at the gate, Called is sent before
        the call is done (`_name_outputs`), and the call's time is returned as the reply to Finish.
        Raises TypeError for more than tensors.MAX_OUTPUTS outputs, tensors.Unreadable for an output that cannot be
        sent, and any exception that the model raises.
        """
        if request.prepare is not None:
            self._prepare(request.prepare)
        assert self._prepared is not None
        prepared, self._prepared = self._prepared, None
        self._kept = prepared.kept
        gate = self._gate if prepared.opening is Opening.HOST else None
        if gate is not None:
            gate.pass_through()
        placed, inputs = self._place(prepared.inputs)
        with torch.no_grad(), self._device.memory(poisoned=prepared.poison, moved=prepared.moved):
            output, clocked = self._timed(lambda: self._called(inputs), prepared)
        self._last = (lambda: self._model(*inputs), placed) if prepared.keep else None
        if self._outputs.exports is None:
            self._outputs.take(output)
            self._device.synchronize()
        if gate is not None:
            gate.say_done()
        if prepared.opening is Opening.STREAM and self._outputs.exports is not None:
            return clocked
        placed.write_back()
        described = self._outputs.described()
        self._outputs.overwrite(prepared.kept)
        return messages.Called(*described, clocked, self._launches_since())

    def _name_outputs(self) -> None:
        """Tells the judge where the outputs of a call will be, and waits for Finish. The call is enqueued."""
        self._reply(messages.Called(*self._outputs.described(), None, None))
        self.serve((messages.Export, messages.Finish))

    def _called(self, inputs: Any) -> Any:
        """Calls the model. Copies of outputs that the judge cannot read where they lie are a part of a timed call."""
        output = self._model(*inputs)
        if self._outputs.exports is not None:
            self._outputs.take(output)
        return output

    def _fetch(self, request: messages.Fetch) -> Done:
        """Copies the outputs of the last call, which did not fit before, to the shared memory for outputs."""
        self._outputs.copy_rest()
        self._device.synchronize()
        self._outputs.overwrite(self._kept)
        return Done()

    def _export(self, request: messages.Export) -> messages.Exported:
        """Returns the sizes of pieces of a region of this process's device memory. Their descriptors go with it."""
        assert self._outputs.exports is not None
        opened, sizes, left = self._outputs.exports.descriptors(request.region, request.first)
        self._results.extend(opened)
        return messages.Exported(tuple(sizes), left)

    def _memory(self, purpose: Purpose) -> torch.Tensor:
        if purpose not in self._shared:
            raise RuntimeError(f"no memory is shared for {purpose}")
        return self._shared[purpose]

    def _list_kernels(self, request: messages.ListKernels) -> messages.KernelTimes:
        torch.manual_seed(request.seed)
        self._last = None
        _, inputs = self._place(request.inputs)
        with torch.no_grad():
            assert isinstance(self._device, device.TimesKernels)
            kernels = self._device.kernels(lambda: self._model(*inputs))
        return messages.KernelTimes(tuple(name for name, _ in kernels), tuple(float(time) for _, time in kernels))

    def _skip_kernels(self, request: messages.SkipKernels) -> Done:
        assert isinstance(self._device, device.SkipsKernels)
        self._device.skip_kernels(request.skip)
        return Done()

    def _dry_run(self, request: messages.DryRun) -> messages.DryRunEnded:
        assert isinstance(self._device, device.RunsDry)
        self._stage, self._input_count = Stage.CALL, len(request.inputs.leaves)
        self._device.begin_dry_run()
        before = self._device.launched_threads()
        torch.manual_seed(request.seed)
        placed = [
            torch.empty_strided(leaf.shape, leaf.stride, dtype=leaf.dtype, device=self._device.torch_device)
            for leaf in request.inputs.leaves
        ]
        try:
            with torch.no_grad():
                self._model(*tensors.unflatten(request.inputs.structure, placed))
        except Exception:
            if not (refused := self._device.refused_launch(raised=True)):
                raise
        else:
            refused = self._device.refused_launch(raised=False)
        return messages.DryRunEnded(refused, self._device.launched_threads() - before)

    def _thin_grids(self, request: messages.ThinGrids) -> Done:
        assert isinstance(self._device, device.RunsDry)
        self._device.thin_grids()
        return Done()

    def _place(self, layout: InputLayout) -> tuple[device.Placed, Any]:
        """Puts a call's inputs on the device. `layout` describes them in the shared memory for inputs.

        Returns the placed tensors, and the inputs that contain these tensors.
        """
        self._stage = Stage.CALL
        placed = self._device.place(self._memory(Purpose.INPUTS)[: layout.size], layout.leaves)
        self._launches_before = self._launches()
        inputs = tensors.unflatten(layout.structure, placed.tensors)
        self._input_count = len(inputs)
        return placed, inputs

    def _repeat(self, request: messages.Repeat) -> device.Clocked:
        """Repeats the kept call. The inputs are in the shared memory for inputs afterwards, as after any call."""
        call, placed = self._kept_call()
        with torch.no_grad():
            clocked = self._device.timed(call, hold=device.Sleep(), cold=False)[1]
        placed.write_back()
        return clocked

    def _replay(self, request: messages.Replay) -> messages.Replayed:
        with torch.no_grad():
            return messages.Replayed(self._device.steady(self._kept_call()[0]))

    def _timed(self, call: Callable[[], Any], prepared: messages.Prepare) -> tuple[Any, device.Clocked]:
        if prepared.timed:
            cold = not self._memory(Purpose.INPUTS).is_cuda  # else the judge has emptied the cache
            return self._device.timed(call, hold=self._hold_of(prepared), cold=cold)
        result = call()
        self._device.synchronize()
        return result, device.Clocked(None)

    def _hold_of(self, prepared: messages.Prepare) -> device.Hold | None:
        """Returns the hold of the device in a timed call, or None if it has none.

        It is the hold at the gate, or a Sleep if this worker has none because the shared memory is the host's.
        """
        return (self._hold or device.Sleep()) if prepared.held else None

    def _kept_call(self) -> tuple[Callable[[], Any], device.Placed]:
        if self._last is None:
            raise RuntimeError("this worker has kept no call that it could repeat")
        return self._last

    def _begin_profile(self, request: messages.BeginProfile) -> Done:
        assert isinstance(self._device, device.Profiles)
        self._device.begin_profile()
        return Done()

    def _end_profile(self, request: messages.EndProfile) -> messages.Recorded:
        assert isinstance(self._device, device.Profiles)
        return messages.Recorded(self._device.end_profile())

    def _sanitize_next_call(self, request: messages.SanitizeNextCall) -> Done:
        assert isinstance(self._device, device.Sanitizes)
        self._device.sanitize_next_call(request.order, checks=request.checks)
        return Done()

    def _findings(self, request: messages.GetFindings) -> messages.Recorded:
        assert isinstance(self._device, device.Sanitizes)
        return messages.Recorded(self._device.findings(request.blame))

    def _failure(self, error: BaseException) -> Failure:
        """Returns the message to the judge that describes `error`, which was raised while a request was carried out."""
        return failure.described(error, self._stage, self._file.name, self._model, self._input_count, self._is_healthy)

    def _is_healthy(self) -> bool:
        """Returns whether the device still works. Before a candidate is loaded, it counts as healthy."""
        try:
            if self._stage not in _STAGES_WITHOUT_DEVICE:
                self._device.synchronize()
        except Exception:
            return False
        return True

    def _launches(self) -> int | None:
        return self._device.launches() if isinstance(self._device, device.CountsLaunches) else None

    def _launches_since(self) -> int | None:
        """Returns the number of kernels that the last call has launched; None if the device does not count launches."""
        now = self._launches()
        return None if now is None or self._launches_before is None else now - self._launches_before


_HANDLERS: dict[type[Message], Callable[[Worker, Any], Message]] = {
    get_type_hints(method)["request"]: method
    for method in vars(Worker).values()
    if "request" in getattr(method, "__annotations__", ())
}
"""The method of Worker that carries out each kind of request: the one with a parameter `request` of this type."""
