"""The messages between the judge and the worker of a candidate. Other messages are in the modules beside this one.

Each one is a frozen dataclass with annotations for its limits. A field of type Any holds JSON that is written and
checked by another module.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from kernel_harness.ipc import tensors
from kernel_harness.ipc.schema import AtMost, Cut, JsonAtMost, Message, Plausible
from kernel_harness.ipc.tensors import Leaf

LONGEST_TEXT, LONGEST_LOG, MOST_SUMS = 20_000, 1 << 20, 10_000


@dataclass(frozen=True)
class Done(Message):
    """The reply to a request that was carried out and has no result."""


@dataclass(frozen=True)
class InputLayout(Message):
    """A part of some requests: the places of a call's or a constructor's inputs in a shared buffer of `size` bytes.

    `structure` is the nesting and the plain values of the inputs, as `tensors.flatten` returns it. `leaves` describes
    each tensor: dtype, shape, strides and offset in the buffer. The constructor raises tensors.Unreadable if a tensor
    ends beyond the buffer.
    """

    structure: Any
    leaves: Annotated[tuple[Leaf, ...], AtMost(tensors.MAX_LEAVES)]
    size: int

    def __post_init__(self) -> None:
        tensors.check_inside(self.leaves, self.size)


@dataclass(frozen=True)
class Ping(Message):
    """A request to a worker that asks for nothing. The reply, Done, shows that the worker runs."""


@dataclass(frozen=True)
class Start(Message):
    """A request to a worker: open the device with the name `device`. The reply is Done.

    The worker also puts the folders in `import_path` first in `sys.path`.
    """

    device: str
    import_path: tuple[str, ...]


class Purpose(StrEnum):
    """The purpose of a piece of memory that judge and worker share: the inputs of calls, their outputs, or the gate."""

    INPUTS = "inputs"
    OUTPUTS = "outputs"
    GATE = "gate"


class Opening(StrEnum):
    """When the inputs of a call are in the shared memory for inputs.

    - BEFORE: before the request Call arrives.
    - HOST: when the gate is open. The worker waits at the gate, and then calls the model.
    - STREAM: when the gate is open. The worker calls the model at once, and the device's stream waits at the gate.
    """

    BEFORE = "before"
    HOST = "host"
    STREAM = "stream"


@dataclass(frozen=True)
class Share(Message):
    """A request to a worker: map shared memory of `size` bytes for the purpose `purpose`.

    The reply is Done. `on_device` says whether the memory is the CUDA device's; otherwise it is the host's. One
    descriptor, that of the memory, comes with the request. The worker first unmaps the memory that it has mapped for
    this purpose. If `size` is 0, the worker only unmaps, and no descriptor comes with the request.
    """

    purpose: Purpose
    size: int
    on_device: bool


@dataclass(frozen=True)
class Load(Message):
    """A request to a worker: execute a candidate's file and look up the class `class_name` in it. The reply is Done.

    `file` is the file's name and `source` its text. Executing the file also builds the CUDA or C++ extensions in it. A
    device that sanitizes first switches its sanitizer on, which checks the kernels' memory accesses.
    """

    file: str
    source: str
    class_name: str


@dataclass(frozen=True)
class Make(Message):
    """A request to a worker: build the model. The reply is Made.

    The worker first seeds torch's random generator with `seed`. If `varied`, a parameter that the constructor sets to
    one number everywhere gets different numbers (`problem.varied_parameters`). `compile_mode` is a mode of
    torch.compile, or None for a model that is not compiled. `inputs` describes the list of the arguments of the model's
    constructor. One descriptor comes with the request: the shared buffer that holds the tensors. `names` are names of
    tensors of a state dict, whose checksums the reply has. If `values`, it has those of all values instead.
    """

    inputs: InputLayout
    seed: int
    varied: bool
    compile_mode: str | None
    names: tuple[str, ...] = ()
    values: bool = False


@dataclass(frozen=True)
class Made(Message):
    """The reply to Make: numbers that show whether the model has the parameters of the reference.

    `sums` has the checksum of the tensor of each name in the request, or None if the model's state dict has no such
    tensor. If `values` in the request is True, it has the `tensors.value_sums` of the model's state dict. If the
    constructor fails and `varied` is True, the reply is not Failure but Made without sums.
    """

    sums: Annotated[tuple[int | None, ...], Cut(MOST_SUMS)] = ()


@dataclass(frozen=True)
class Prepare(Message):
    """A request to a worker: make ready for one call of the model, which Call asks for. The reply is Done.

    - `inputs`: the description of the inputs in the shared memory for inputs.
    - `seed`: the worker first seeds torch's random generator with this number.
    - `poison`: device memory that the call allocates is first filled with NaN.
    - `timed`: whether the device times the call.
    - `held`: whether the device begins a timed call only when it is enqueued, so that its time has no launch latency.
    - `opening`: when the inputs are in the shared memory.
    - `keep`: the worker keeps the inputs, so that Repeat or Replay can make the same call again.
    - `moved`: the memory that the call allocates is at another place of the device than that of earlier calls.
    - `kept`: the indices of the outputs that a candidate may keep; None if that is not known yet. The worker does not
      overwrite the candidate's own tensors of these outputs after the call; if it is None, it overwrites none.
    """

    inputs: InputLayout
    seed: int
    poison: bool
    timed: bool
    held: bool
    opening: Opening
    keep: bool
    moved: bool
    kept: tuple[int, ...] | None


@dataclass(frozen=True)
class Call(Message):
    """A request to a worker: make the call that `prepare` describes, or, if that is None, the last Prepare.

    The reply is Called. An output in a CUDA device's memory that the judge can map stays where it is. The worker copies
    any other output to the shared memory for outputs if these outputs fit there. If not, the judge shares more memory
    and sends Fetch.
    """

    prepare: Prepare | None = None


@dataclass(frozen=True)
class Finish(Message):
    """A request to a worker that has named the outputs of a timed call: wait until it is done. The reply is Clocked."""


@dataclass(frozen=True)
class Fetch(Message):
    """A request to a worker: copy the outputs of the last call to the shared memory for outputs. The reply is Done.

    An output that the judge reads where it lies is not copied.
    """


@dataclass(frozen=True)
class Export(Message):
    """A request for a region of the worker's device memory, from the piece `first` on. The reply is Exported."""

    region: int
    first: int


@dataclass(frozen=True)
class Repeat(Message):
    """A request to a worker: make the last call, which must have had `keep` set, once more, and time it.

    The worker does not empty the device's cache before, so the cache may hold the inputs. The reply is Clocked.
    """


@dataclass(frozen=True)
class Replay(Message):
    """A request to a worker: time the last call, which must have had `keep`, as a CUDA graph. The reply is Replayed."""


@dataclass(frozen=True)
class ListKernels(Message):
    """A request to a worker: call the model once and list the kernels that the call launches. The reply is KernelTimes.

    `inputs` describes the inputs in the shared memory for inputs. The worker first seeds torch's random generator with
    `seed`.
    """

    inputs: InputLayout
    seed: int


@dataclass(frozen=True)
class SkipKernels(Message):
    """A request to a worker of the emulated device: if `skip`, launch no kernel from now on, else launch them again.

    The reply is Done.
    """

    skip: bool


@dataclass(frozen=True)
class DryRun(Message):
    """A request to a worker of the emulated device: run the host code of one call. The reply is DryRunEnded.

    `inputs` describes the inputs, for which no memory is shared, because no value is needed. `seed` is as in Prepare.
    Only Make and DryRun may follow. The worker ends without a reply if the host code needs a value from device memory.
    """

    inputs: InputLayout
    seed: int


@dataclass(frozen=True)
class DryRunEnded(Message):
    """The reply to DryRun: the message of a launch that was refused, or an empty text, and the threads of all others.

    An exception that follows a refused launch is replaced by this reply. Any other exception is reported as Failure.
    """

    refused: Annotated[str, Cut(1000)]
    threads: Annotated[int | None, Plausible(0, 1 << 60)]


@dataclass(frozen=True)
class ThinGrids(Message):
    """A request to a worker of the emulated device: run a 64th of the blocks of later launches. The reply is Done."""


@dataclass(frozen=True)
class BeginProfile(Message):
    """A request to a worker: start to record what each kernel launch does (EndProfile). The reply is Done."""


@dataclass(frozen=True)
class EndProfile(Message):
    """A request to a worker: stop recording. The reply is Recorded.

    Its content is a JSON object. Under `launches` is a list of objects, one for each kernel launch, in order. Under
    `compiled` is one for each Triton kernel and specialization. The object of a launch has the sizes of grid and block,
    the numbers of bytes accessed, barriers and warp operations, and what the recorded warps did by machine
    instruction and by basic block.
    """


@dataclass(frozen=True)
class SanitizeNextCall(Message):
    """A request to a worker: set in which order the threads run in the next call of the model. The reply is Done.

    `order` 0 runs the threads of a kernel forwards and 1 in reverse; any other number is the seed of a random order.
    `checks` says whether the sanitizer checks memory accesses in this call.
    """

    order: int
    checks: bool


@dataclass(frozen=True)
class GetFindings(Message):
    """A request to a worker: what did the sanitizer find in the last call? The reply is Recorded.

    `blame` names one element of an output whose value changes with the order of threads: the index of the output and
    the row-major index of the element. The sanitizer then reports this dependence too. None names no element.
    """

    blame: Annotated[tuple[int, ...], AtMost(2)] | None


@dataclass(frozen=True)
class Clocked(Message):
    """The time and memory of one call, as the worker reports them. No verdict rests on this alone: a worker can lie.

    `device_ms` is the duration in milliseconds. `exposed` is true if a hold ended before all kernels of the call were
    enqueued, so that the duration may include launch latency; it is false for a call without a hold. `peak_bytes` is
    the most device memory that torch allocated in the call beyond what it had allocated before. A number that was not
    measured is None.

    A duration outside 1e-6 to 1e9 ms or a memory outside 0 to 2**50 - 1 bytes also becomes None, because the judge's
    statistics could not compute with it: 10**400 does not fit into a float, and a division by 5e-324 overflows.
    """

    device_ms: Annotated[float | None, Plausible(1e-6, 1e9)]
    exposed: bool = False
    peak_bytes: Annotated[int | None, Plausible(0, (1 << 50) - 1)] = None


@dataclass(frozen=True)
class Place(Message):
    """A part of Called: where an output tensor lies in the worker's own device memory.

    `region` is the number of a region that Export names, or 0 for the shared memory for inputs. `offset` is the offset
    in bytes of the tensor's first element in the region, and `stride` has the tensor's strides in elements.
    """

    region: int
    offset: int
    stride: Annotated[tuple[int, ...], AtMost(tensors.MAX_RANK)]


@dataclass(frozen=True)
class Exported(Message):
    """The reply to Export: the `sizes` in bytes of pieces of a region, and how many pieces are `left` after them.

    One descriptor comes with the reply for each size.
    """

    sizes: tuple[int, ...]
    left: int


@dataclass(frozen=True)
class Called(Message):
    """The reply to Call: where the output is, and what the worker measured for the call.

    For a call that waits at the gate in the device's stream, and whose outputs the judge reads where they lie, the
    reply names the outputs before the call begins. `time` is None then, and the judge sends Finish next.

    `structure` is the nesting of the output as `tensors.flatten` returns it. `leaves` describes each output tensor
    (dtype, shape, strides, offset) in the shared memory for outputs. If the tensor's entry in `places` is not None, the
    tensor is not there but at that place, and the leaf gives only its dtype and shape, and the strides for a copy.
    `regions` has the numbers of all regions that still exist. `time` has the duration of the call and the memory that
    it took. `launches` is the number of kernels that the call launched, or None if the device does not count launches.
    """

    structure: Annotated[Any, JsonAtMost(1 << 16)]
    leaves: Annotated[tuple[Leaf, ...], AtMost(tensors.MAX_OUTPUTS)]
    places: Annotated[tuple[Place | None, ...], AtMost(tensors.MAX_OUTPUTS)]
    regions: Annotated[tuple[int, ...], AtMost(1 << 12)]
    time: Clocked | None
    launches: Annotated[int | None, Plausible(0, 1 << 50)]

    def __post_init__(self) -> None:
        if any(leaf.storage is not None for leaf in self.leaves):
            raise tensors.Unreadable("an output has no storage of its own")


@dataclass(frozen=True)
class Steady(Message):
    """The times of a call that is replayed many times as a CUDA graph, in milliseconds.

    `interval_ms` is the time from one call to the next within a graph. `overhead_ms` is the time that one replay of the
    graph takes in addition to its calls.
    """

    interval_ms: float
    overhead_ms: float


@dataclass(frozen=True)
class Replayed(Message):
    """The reply to Replay: the times of a CUDA graph, or None on a device without graphs."""

    steady: Steady | None


@dataclass(frozen=True)
class KernelTimes(Message):
    """The reply to ListKernels: names and times of kernels in the order of their launches.

    A name is cut after 1000 characters, because template arguments can make the name of an honest kernel very long. The
    lists are cut after 1000 kernels. A time is in microseconds; a time below 0 or above 1e12 becomes None.
    """

    names: Annotated[tuple[Annotated[str, Cut(1000)], ...], Cut(1000)]
    times_us: Annotated[tuple[Annotated[float | None, Plausible(0, 1e12)], ...], Cut(1000)]


@dataclass(frozen=True)
class Recorded(Message):
    """The reply to EndProfile and GetFindings: JSON that the package `diagnostics` checks."""

    content: Any


class Stage(StrEnum):
    """The step at which a worker failed."""

    START = "start"
    LOAD = "load"
    BUILD = "build"
    FULL_HEADERS = "full headers"  # a build that needs the precompiled form of torch's full headers in the cache
    UNSUPPORTED = "unsupported"  # a build of sources with a construct that the emulator cannot run
    MAKE = "make"
    CALL = "call"


@dataclass(frozen=True)
class Failure(Message):
    """The reply to a request that raised an exception; also the judge's answer to a worker whose build failed.

    `stage` is the step that failed. `type` is the name of the exception's class, and `message` its text. `line` is the
    line of the candidate's file at which the exception was raised, or None if the line is not known. `log` is a
    compiler's log or a traceback. `refusal` is true if the exception may mean that the model declines the shape: an
    AssertionError, ValueError, NotImplementedError or RuntimeError that names no failed launch.
    """

    stage: Stage
    type: Annotated[str, Cut(100)]
    message: Annotated[str, Cut(LONGEST_TEXT)]
    line: Annotated[int | None, Plausible(1, 1 << 31)]
    log: Annotated[str, Cut(LONGEST_LOG)]
    refusal: bool
