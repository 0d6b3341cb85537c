"""Which kernels a call launches on a CUDA device, looked at once it has been timed: whoever profiles slows down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from kernel_harness.candidate import Candidate
from kernel_harness.cases import Case, Reference
from kernel_harness.examine import Fault, Finding, Refused, Subject
from kernel_harness.inputs import buffer_of
from kernel_harness.status import Status


def look(
    subject: Subject, candidate: Candidate, finding: Finding, reference: Reference, cases: Sequence[Case]
) -> Fault | None:
    """Counts the candidate's own launches, as its process tells them: for a remark, never for a good verdict.

    What cannot be seen stays unknown: where there is no kernel at all, the profiler saw nothing. Returns a fault where
    a shape was refused only after a launch.
    """
    try:
        timed = next(case for case in cases if case.timed_shape)
        if kernels := _kernels(subject, reference, timed):
            finding.launches = len(own(kernels, candidate.source, subject.libraries))
        for case in (case for case in cases if case.shape_name in finding.refused):
            subject.make(reference.at(case))
            if names := own(_kernels(subject, reference, case), candidate.source, subject.libraries):
                finding.failed_case = case
                reason = f"{case.name}: it refuses this shape, but launches {names[0]} first; refuse before that."
                return Fault(Status.RUNTIME_ERROR, reason)
        if finding.refused:
            subject.make(reference.problem)  # it may be called again
    except (Fault, Refused):
        pass
    finally:
        subject.worker.pause()
    return None


def _kernels(subject: Subject, reference: Reference, case: Case) -> list[str]:
    packed = reference.inputs(case)
    with closing(buffer_of(packed)) as buffer:
        return subject.kernels(packed, buffer)


def own(kernels: Sequence[str], source: str, libraries: Sequence[Path]) -> list[str]:
    """Those of the kernels that a candidate's text names, or a library that was built for it."""
    written = set(re.findall(r"\w+", source))
    built = [library.read_bytes() for library in libraries]
    names = [name for kernel in kernels if (name := base_name(kernel))]
    return [name for name in names if name in written or any(_mangled(name) in each for each in built)]


def _mangled(name: str) -> bytes:
    """As a part of a C++ symbol (Itanium C++ ABI, 5.1.2: the length comes first)."""
    return f"{len(name)}{name}".encode()


def base_name(kernel: str) -> str:
    """A kernel's bare name, as a profiler writes it with namespaces, template arguments and parameters."""
    head = re.split(r"[<(]", kernel.replace("(anonymous namespace)", ""))[0]
    words = re.findall(r"\w+", head)
    return words[-1] if words and not head.startswith(("Memcpy", "Memset")) else ""
