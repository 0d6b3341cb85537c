"""The main program of a worker process. On request, it loads one candidate and calls the candidate's model.

A worker without a candidate makes one build, or probes the wall. After the candidate is loaded, the judge trusts
nothing that this process sends.
"""

from __future__ import annotations

import gc
import importlib.util
import inspect
import io
import linecache
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from cuda_on_cpu.compile import load_inline
from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.compile.errors import (
    BuildFailed,
    CompilerFailed,
    FullHeadersMissing,
    NoCompiler,
    UnsupportedConstruct,
)
from cuda_on_cpu.compile.sources import Sources, from_json, to_json
from cuda_on_cpu.emulator import torch_cuda
from kernel_harness import device
from kernel_harness.compile import cu_file, nvcc
from kernel_harness.ipc import channel, messages, shared_memory, tensors
from kernel_harness.ipc.gate import Gate
from kernel_harness.ipc.messages import BuildWanted, Built, Done, Failure, InputLayout, Opening, Purpose, Stage
from kernel_harness.ipc.schema import Message
from kernel_harness.problem.varied_parameters import varied
from kernel_harness.sandbox import probe
from kernel_harness.worker import where
from kernel_harness.worker.outputs import Outputs

# The characters of a compiler's log that are sent to the judge: the first ones, because the first errors matter. One
# character can take six bytes of a message.
_LONGEST_LOG = 120_000
_NOTHING = torch.empty(0, dtype=torch.uint8)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# Packages in which kernels are written. A machine without one of them says nothing about a candidate that needs it.
_KERNEL_LANGUAGES = ("cuda", "cupy", "cutlass", "numba", "pycuda", "tilelang", "triton", "warp")
# What cudaGetErrorString says of launches that fail (CUDA Runtime API, "Data types", cudaError), and what candidates
# say themselves. The text can only take a refusal away, so a candidate that forges it harms itself.
_LAUNCH_ERROR = re.compile(
    r"CUDA error|invalid (?:configuration )?argument|invalid device function|invalid resource handle|misaligned address"
    r"|illegal memory access|no kernel image is available|out of memory|too many resources requested"
    r"|launch\w*\b[^.]{0,20}\b(?:fail|error)|\bfail\w*\s+to\s+launch",
    re.IGNORECASE,
)
_STAGES_WITHOUT_DEVICE = (Stage.START, Stage.BUILD)


def main(end: channel.Channel) -> int:
    """Replies to the judge's requests until the judge closes its end of the channel `end`. Returns the exit code 0."""
    with suppress(channel.Closed):
        Worker(end).serve(tuple(_HANDLERS))
    return 0


class Worker:
    """The state of a worker process: its device, its candidate's class and model, and the shared memory that it maps.

    Each method with a parameter `request` carries out one kind of request and returns the reply. `descriptors` are the
    file descriptors that came with the request.
    """

    def __init__(self, end: channel.Channel) -> None:
        self._end, self._asking = end, threading.Lock()
        self.number = ""  # of the request in progress
        self.results: list[int] = []  # descriptors to send with the next reply
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
            received = messages.receive(self._end, kinds)
            self.number = received.number
            try:
                if isinstance(received.message, messages.Finish):
                    return
                reply = _HANDLERS[type(received.message)](self, received.message, received.descriptors)
            except channel.Closed:
                raise
            except BaseException as error:
                reply = self.failure(error)
            finally:
                received.close()
            self._reply(reply)

    def _reply(self, reply: Message) -> None:
        messages.send(self._end, reply, self.number, self.results)
        while self.results:
            os.close(self.results.pop())

    def ping(self, request: messages.Ping, descriptors: list[int]) -> Done:
        """Returns Done, which shows that the process runs."""
        return Done()

    def probe(self, request: messages.Probe, descriptors: list[int]) -> messages.Probed:
        """Tries everything that the wall must prevent, with the targets in `request`, and returns what succeeded."""
        return probe.attempt(request)

    def start(self, request: messages.Start, descriptors: list[int]) -> Done:
        """Opens the device, and puts `request.import_path` first in `sys.path`."""
        where.install()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        self._device = device.named(request.device)
        self._outputs = Outputs(self._device)
        sys.path[:0] = request.import_path
        self._device.open()
        return Done()

    def share(self, request: messages.Share, descriptors: list[int]) -> Done:
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
            mapped = self._device.map(descriptors[0], request.size, on_device=request.on_device)
            self._shared[request.purpose] = mapped
            if request.purpose is Purpose.GATE:
                self._gate, self._hold = Gate(mapped), None
            elif request.on_device and self._hold is None and self._gate is not None:
                assert isinstance(self._device, device.TakesTurns)
                self._hold = self._device.hold_at(self._gate, self._name_outputs)
                self._outputs.exports = self._device.exports()
        self._outputs.inputs, self._outputs.memory = map(self._shared.get, (Purpose.INPUTS, Purpose.OUTPUTS))
        return Done()

    def load(self, request: messages.Load, descriptors: list[int]) -> Done:
        """Executes the candidate's file and keeps the model's class, which later requests use. Returns Done.

        The execution builds the candidate's extensions. `request` has the text of the file and the name of the class.
        Raises AttributeError if the file does not define the class, and any exception that the file raises.
        """
        self._stage = Stage.LOAD
        file = request.file
        if (self._file.name, self._file.text) != (file, request.source):  # the sanitizer may already have this file
            self._file = CandidateFile(file, request.source)
        load_inline.install(self._build_in_judge, self._file)
        module = run_file(file, request.source, cu_file.as_module(file, request.source))
        self._class = getattr(module, request.class_name, None)
        if self._class is None:
            raise AttributeError(f"{file} defines no {request.class_name}; name the class {request.class_name}")
        return Done()

    def _build_in_judge(self, sources: Sources) -> tuple[Path, bool]:
        """Asks the judge for a library built from `sources`, while this worker carries out a request from the judge.

        Returns the library's path and False. In place of False, other builders return whether the build cache held the
        library, but here only the judge knows that. Raises CompilerFailed if a compiler or a linker reports an error,
        UnsupportedConstruct if the emulator cannot run a construct in the sources, and BuildFailed, the base class of
        both, if the build fails otherwise. Messages call the sources by neutral names (`Sources.cpp_file`,
        `Sources.cuda_file`), not by the name of the candidate's file.
        """
        with self._asking:
            kinds: tuple[type[Built | Failure], ...] = (Built, Failure)
            messages.send(self._end, BuildWanted(to_json(sources)), self.number)
            received = messages.receive(self._end, kinds)
            self.number = received.number
        answer = received.message
        if isinstance(answer, Failure):
            if answer.type == CompilerFailed.__name__:
                raise CompilerFailed(answer.log)
            unsupported = answer.stage is Stage.UNSUPPORTED
            raise (UnsupportedConstruct if unsupported else BuildFailed)(answer.message, answer.log)
        library = Path(answer.library)
        self._device.built(library)
        return library, False

    def build(self, request: messages.Build, descriptors: list[int]) -> messages.Library:
        """Compiles sources that another worker asked for. Returns the library's name and the files that the build read.

        A descriptor of the library, open for reading, goes with the reply.
        """
        self._stage = Stage.BUILD
        folder = Path("build").absolute()
        folder.mkdir()
        sources = from_json(request.sources)
        builder = device.named(request.device)
        builder.build(sources, folder)
        library = next(folder.glob("*.so"), None)
        if library is None:
            raise BuildFailed("The build wrote no library: remove flags such as -o, which say where it is written.")
        self.results.append(os.open(library, os.O_RDONLY | os.O_CLOEXEC))
        read = nvcc.files_read(sources, folder)
        return messages.Library(library.name, tuple(read) if len(read) <= messages.MOST_READ_FILES else None)

    def make(self, request: messages.Make, descriptors: list[int]) -> messages.Made:
        """Seeds torch's generator as for the reference model, and builds the model from its constructor's inputs.

        If `request.varied`, the reply says whether the model has the reference's parameters. It says no if the
        constructor fails: the constructor may have checked the parameters that it sets. If not `request.varied`, the
        model is not compared, and an exception that the constructor raises is raised.
        """
        self._stage = Stage.MAKE
        layout = request.inputs
        memory = shared_memory.map_shared(descriptors[0], layout.size)
        inputs, state = tensors.unflatten(layout.structure, [leaf.view(memory).clone() for leaf in layout.leaves])
        self._model = None
        torch.manual_seed(request.seed)
        try:
            with torch.no_grad(), varied(request.seed) if request.varied else nullcontext():
                self._model = self._class(*inputs)
            alike = request.varied and _has(self._model, state)
            differing = () if request.varied else _differing(self._model, state)
        except Exception:
            if request.varied:
                return messages.Made(False)
            raise
        if isinstance(self._model, torch.nn.Module):
            self._model = self._model.to(self._device.torch_device)
        if request.compile_mode:
            self._model = torch.compile(self._model, mode=request.compile_mode)
        self._device.synchronize()
        return messages.Made(alike, differing)

    def prepare(self, request: messages.Prepare, descriptors: list[int]) -> Done:
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

    def call(self, request: messages.Call, descriptors: list[int]) -> messages.Called | messages.DeviceTime:
        """Calls the model once. The judge gets the outputs as `Outputs` says.

        `request.prepare`, or the last `Prepare`, describes the call. The inputs are in the shared memory for inputs
        afterwards, where the judge looks for changes. If the device's stream waits at the gate, Called is sent before
        the call is done (`_name_outputs`), and the call's time is returned as the reply to Finish.
        Raises TypeError for more than tensors.MAX_OUTPUTS outputs, tensors.Unreadable for an output that cannot be
        sent, and any exception that the model raises.
        """
        if request.prepare is not None:
            self.prepare(request.prepare, [])
        assert self._prepared is not None
        prepared, self._prepared = self._prepared, None
        self._kept = prepared.kept
        gate = self._gate if prepared.opening is Opening.HOST else None
        if gate is not None:
            gate.pass_through()
        placed, inputs = self._place(prepared.inputs)
        with torch.no_grad(), self._device.memory(poisoned=prepared.poison):
            output, clocked = self._timed(lambda: self._called(inputs), prepared)
        self._last = (lambda: self._model(*inputs), placed) if prepared.keep else None
        if self._outputs.exports is None:
            self._outputs.take(output)
            self._device.synchronize()
        if gate is not None:
            gate.say_done()
        if prepared.opening is Opening.STREAM and self._outputs.exports is not None:
            return _device_time(clocked)
        placed.write_back()
        described = self._outputs.described()
        self._outputs.overwrite(prepared.kept)
        return messages.Called(*described, _device_time(clocked), self._launches_since())

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

    def fetch(self, request: messages.Fetch, descriptors: list[int]) -> Done:
        """Copies the outputs of the last call, which did not fit before, to the shared memory for outputs."""
        self._outputs.copy_rest()
        self._device.synchronize()
        self._outputs.overwrite(self._kept)
        return Done()

    def export(self, request: messages.Export, descriptors: list[int]) -> messages.Exported:
        """Returns the sizes of pieces of a region of this process's device memory. Their descriptors go with it."""
        assert self._outputs.exports is not None
        opened, sizes, left = self._outputs.exports.descriptors(request.region, request.first)
        self.results.extend(opened)
        return messages.Exported(tuple(sizes), left)

    def _memory(self, purpose: Purpose) -> torch.Tensor:
        if purpose not in self._shared:
            raise RuntimeError(f"no memory is shared for {purpose}")
        return self._shared[purpose]

    def list_kernels(self, request: messages.ListKernels, descriptors: list[int]) -> messages.KernelTimes:
        """Calls the model once under a profiler, and returns names and times of the kernels that the call launches."""
        torch.manual_seed(request.seed)
        self._last = None
        _, inputs = self._place(request.inputs)
        with torch.no_grad():
            assert isinstance(self._device, device.TimesKernels)
            kernels = self._device.kernels(lambda: self._model(*inputs))
        return messages.KernelTimes(tuple(name for name, _ in kernels), tuple(float(time) for _, time in kernels))

    def skip_kernels(self, request: messages.SkipKernels, descriptors: list[int]) -> Done:
        """Makes later calls skip the candidate's kernels if `request.skip`, and otherwise run them again. Returns Done.

        The device must be one that skips kernels.
        """
        assert isinstance(self._device, device.SkipsKernels)
        self._device.skip_kernels(request.skip)
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

    def repeat(self, request: messages.Repeat, descriptors: list[int]) -> messages.DeviceTime:
        """Makes the last call, which had `keep` set, once more, and returns its time and memory.

        The device's cache is not emptied before. It may hold the inputs, because the last call used the same ones. They
        are in the shared memory for inputs afterwards, as after any call.
        """
        call, placed = self._kept_call()
        with torch.no_grad():
            clocked = self._device.timed(call, hold=device.Sleep(), cold=False)[1]
        placed.write_back()
        return _device_time(clocked)

    def replay(self, request: messages.Replay, descriptors: list[int]) -> messages.ReplayTimes:
        """Times the last call, which had `keep` set, as a CUDA graph. The times are None on a device without graphs."""
        with torch.no_grad():
            steady = self._device.steady(self._kept_call()[0])
        return messages.ReplayTimes(*((steady.interval_ms, steady.overhead_ms) if steady else (None, None)))

    def _timed(self, call: Callable[[], Any], prepared: messages.Prepare) -> tuple[Any, device.Clocked]:
        if prepared.timed:
            cold = not self._memory(Purpose.INPUTS).is_cuda  # else the judge has emptied the cache
            return self._device.timed(call, hold=self._hold_of(prepared.opening), cold=cold)
        result = call()
        self._device.synchronize()
        return result, device.Clocked(None)

    def _hold_of(self, opening: Opening) -> device.Hold | None:
        """Returns the hold of the device in a timed call: the one at the gate if `opening` is STREAM, otherwise None.

        Returns a Sleep if this worker has no hold at the gate, because the shared memory is the host's.
        """
        if self._hold is None:
            return device.Sleep()
        return self._hold if opening is Opening.STREAM else None

    def _kept_call(self) -> tuple[Callable[[], Any], device.Placed]:
        if self._last is None:
            raise RuntimeError("this worker has kept no call that it could repeat")
        return self._last

    def begin_profile(self, request: messages.BeginProfile, descriptors: list[int]) -> Done:
        """Starts to record sizes and counts of each kernel launch. The device must be one that profiles."""
        assert isinstance(self._device, device.Profiles)
        self._device.begin_profile()
        return Done()

    def end_profile(self, request: messages.EndProfile, descriptors: list[int]) -> messages.LaunchCounts:
        """Stops recording, and returns sizes and counts of each kernel launch since `begin_profile`.

        The device must be one that profiles.
        """
        assert isinstance(self._device, device.Profiles)
        return messages.LaunchCounts(self._device.end_profile())

    def begin_sanitizing(self, request: messages.BeginSanitizing, descriptors: list[int]) -> Done:
        """Switches on the sanitizer, which checks memory accesses, for a candidate's file.

        The device must be one that sanitizes.
        """
        assert isinstance(self._device, device.Sanitizes)
        self._file = CandidateFile(request.file, request.source)
        self._device.begin_sanitizing(self._file)
        return Done()

    def sanitize_next_call(self, request: messages.SanitizeNextCall, descriptors: list[int]) -> Done:
        """Sets in which order threads run in the next call, and whether the sanitizer checks its memory accesses."""
        assert isinstance(self._device, device.Sanitizes)
        self._device.sanitize_next_call(request.order, checks=request.checks)
        return Done()

    def findings(self, request: messages.GetFindings, descriptors: list[int]) -> messages.Findings:
        """Returns what the sanitizer found in the last call. The device must be one that sanitizes.

        `request.blame` names one element of one output whose value changes with the order of threads, or is None.
        """
        assert isinstance(self._device, device.Sanitizes)
        return messages.Findings(self._device.findings(request.blame))

    def _launches(self) -> int | None:
        return self._device.launches() if isinstance(self._device, device.CountsLaunches) else None

    def _launches_since(self) -> int | None:
        """Returns the number of kernels that the last call has launched; None if the device does not count launches."""
        now = self._launches()
        return None if now is None or self._launches_before is None else now - self._launches_before

    def failure(self, error: BaseException) -> Failure:
        """Returns the message to the judge that describes `error`, an exception raised while a request was carried out.

        The message calls the exception a refusal (the model declines this shape) only if the device still works.
        """
        lacking, reached = torch_cuda.lacks(error), torch_cuda.lack()
        if isinstance(error, (UnsupportedConstruct, NoCompiler)) or _lacks_kernel_language(error) or lacking or reached:
            stage = Stage.UNSUPPORTED  # this is no mistake of the candidate
        elif isinstance(error, FullHeadersMissing):
            stage = Stage.FULL_HEADERS
        elif isinstance(error, BuildFailed):
            stage = Stage.BUILD
        else:
            stage = self._stage
        healthy = True
        try:
            if self._stage not in _STAGES_WITHOUT_DEVICE:
                self._device.synchronize()
        except Exception:
            healthy = False
        message, line = _message(error), _line(error, self._file.name)
        if line is None and stage is Stage.CALL and type(error) is TypeError:
            message, line = self._wrong_signature() or (message, line)
        if lacking:
            where = self._file.name if line is None else f"{self._file.name}:{line}"
            message = f"{where}: the emulation lacks this part of torch.cuda: {_sentence(message)}"
        message = reached or message
        return Failure(
            stage,
            type="OutOfMemoryError" if _is_out_of_memory(error) else type(error).__name__,
            message=message[: messages.LONGEST_TEXT],
            line=line,
            log=_log(error),
            refusal=healthy and _is_refusal(error),
        )

    def _wrong_signature(self) -> tuple[str, int] | None:
        """Returns a message and a line for a model whose `forward` does not take the number of inputs of the last call.

        The line is the first of `forward` in the candidate's file. Returns None if `forward` takes the inputs or is not
        a Python function of that file.
        """
        try:
            forward = self._model.forward
            code = inspect.unwrap(forward).__code__
            signature = inspect.signature(forward)
        except Exception:  # the candidate's attributes may be anything
            return None
        names = [name for name, each in signature.parameters.items() if each.kind in _POSITIONAL]
        if code.co_filename != self._file.name or len(names) == self._input_count:
            return None
        try:
            signature.bind(*[None] * self._input_count)
        except TypeError:
            listed = f" ({', '.join(names)})" if names else ""
            takes = f"{len(names)} input{'' if len(names) == 1 else 's'}{listed}"
            return f"forward takes {takes}, but the problem has {self._input_count}", code.co_firstlineno
        return None


_HANDLERS: Mapping[type[Message], Callable[[Worker, Any, list[int]], Message]] = {
    messages.Ping: Worker.ping,
    messages.Probe: Worker.probe,
    messages.Build: Worker.build,
    messages.Start: Worker.start,
    messages.Load: Worker.load,
    messages.Make: Worker.make,
    messages.Share: Worker.share,
    messages.Prepare: Worker.prepare,
    messages.Call: Worker.call,
    messages.Fetch: Worker.fetch,
    messages.Export: Worker.export,
    messages.Repeat: Worker.repeat,
    messages.Replay: Worker.replay,
    messages.ListKernels: Worker.list_kernels,
    messages.SkipKernels: Worker.skip_kernels,
    messages.BeginProfile: Worker.begin_profile,
    messages.EndProfile: Worker.end_profile,
    messages.BeginSanitizing: Worker.begin_sanitizing,
    messages.SanitizeNextCall: Worker.sanitize_next_call,
    messages.GetFindings: Worker.findings,
}


def _lacks_kernel_language(error: BaseException) -> bool:
    """Returns whether the error is the import of a package for writing kernels that is not installed."""
    return isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _KERNEL_LANGUAGES


def _sentence(text: str) -> str:
    """Returns the first sentence of a text, without its full stop."""
    return text.strip().partition("\n")[0].partition(". ")[0]


def _device_time(clocked: device.Clocked) -> messages.DeviceTime:
    return messages.DeviceTime(clocked.device_ms, clocked.exposed, clocked.peak_bytes)


def _line(error: BaseException, file: str) -> int | None:
    """Returns the line of the candidate's `file` at which `error` was raised, or that called the code that raised it.

    For a SyntaxError in `file`, it is the line of that error. Returns None if the traceback has no line of `file`.
    """
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return frames[-1].lineno if frames else None


def _message(error: BaseException) -> str:
    """Returns the text of an exception, changed in three cases.

    If torch raises an internal error because the device has too little free memory, the text says how much is free. If
    Triton is not installed, the text says how to install it. For a Triton kernel that does not compile, the text begins
    with the error and its place. Triton's own text begins with the place in the kernel ("at 5:29:", a line and a
    column), then the kernel's lines up to it, and the error itself at the end, where a shortened message would not show
    it.
    """
    text = str(error)
    if _is_out_of_memory(error) and not isinstance(error, torch.OutOfMemoryError):
        free, total = torch.cuda.mem_get_info()
        return f"CUDA out of memory: {free / 1e9:.3g} GB of the device's {total / 1e9:.4g} GB are free."
    if isinstance(error, ModuleNotFoundError) and error.name == "triton":
        return f"{text}. Kernels in Triton need it, without a GPU too: pip install triton"
    lines = [line for line in text.split("\n") if line.strip()]
    if type(error).__name__ != "CompilationError" or len(lines) < 2 or not lines[0].startswith("at "):
        return text
    return f"{lines[-1]} ({lines[0].rstrip(':')} of the kernel)\n{text}"


def _is_out_of_memory(error: BaseException) -> bool:
    """Returns whether `error` says that the device has too little free memory.

    Behind the wall, torch cannot ask NVML which processes use the device's memory. It then raises an internal error in
    place of its OutOfMemoryError.
    """
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "NVML_SUCCESS ==" in str(error) and "CachingAllocator" in str(error)
    )


def _log(error: BaseException) -> str:
    """Returns the first _LONGEST_LOG characters of the compiler's log of the exception `error`.

    If `error` has no log, returns the last LONGEST_TEXT characters of its traceback.
    """
    log = getattr(error, "log", "")
    if isinstance(log, str) and log:
        return log[:_LONGEST_LOG]
    return "".join(traceback.format_exception(error))[-messages.LONGEST_TEXT :]


def _has(model: Any, state: Mapping[str, int]) -> bool:
    """Returns whether the model's state dict has a tensor for each name in `state`, with the checksum in `state`."""
    if not isinstance(model, torch.nn.Module):
        return False
    return state.items() <= tensors.checksums(model.state_dict()).items()


def _differing(model: Any, state: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the names in `state`, numbers of `tensors.value_sums`, that no tensor of the model's state dict has.

    Returns nothing if the model has no floating-point tensor: its parameters are then elsewhere.
    """
    own = tensors.value_sums(model.state_dict()) if state and isinstance(model, torch.nn.Module) else {}
    return tuple(name for name, number in state.items() if own and number not in own.values())


def _is_refusal(error: BaseException) -> bool:
    """Returns whether an exception may mean that a kernel declines a shape.

    Such an exception is a ValueError, a NotImplementedError or a RuntimeError, which the macro TORCH_CHECK raises. A
    CUDA error and exhausted device memory also arrive as RuntimeErrors, but they decline nothing. An exception whose
    text names a failed launch declines nothing, either: many candidates test themselves whether a launch has failed,
    and raise an exception of these types with CUDA's text of the error or their own.
    """
    if _is_out_of_memory(error) or not isinstance(error, (ValueError, RuntimeError)):
        return False
    return not _LAUNCH_ERROR.search(str(error)[: messages.LONGEST_TEXT])


def run_file(file: str, source: str, text: str) -> ModuleType:
    """Executes a candidate as the module `candidate`, and returns the module. Raises what the candidate raises.

    `text` is the Python code to execute. `source` is the original text of the candidate's `file`, which `inspect` and
    tracebacks show. The two differ for a `.cu` file.
    """
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    spec = importlib.util.spec_from_loader("candidate", loader=None, origin=file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = file
    sys.modules["candidate"] = module
    # The lines of code that was generated for a .cu file are not lines of that file.
    exec(compile(text, file if text == source else f"<module for {file}>", "exec", dont_inherit=True), module.__dict__)
    return module
