"""The possible verdicts on a candidate, and one sentence for each that explains it."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """The verdict on a candidate, or on one check of it."""

    PASSED = "PASSED"
    BUILD_ERROR = "BUILD_ERROR"
    LOAD_ERROR = "LOAD_ERROR"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    CRASHED = "CRASHED"
    TIMEOUT = "TIMEOUT"
    WRONG_SHAPE = "WRONG_SHAPE"
    WRONG_DTYPE = "WRONG_DTYPE"
    WRONG_VALUES = "WRONG_VALUES"
    REDUCED_PRECISION = "REDUCED_PRECISION"
    MUTATED_INPUT = "MUTATED_INPUT"
    NONDETERMINISTIC = "NONDETERMINISTIC"
    CHEATED = "CHEATED"
    UNSUPPORTED = "UNSUPPORTED"

    @property
    def sentence(self) -> str:
        """Returns one sentence that says what happened and what the author of the candidate can do."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.PASSED: "Every check passed.",
    Status.BUILD_ERROR: "The sources did not compile; fix the first error shown.",
    Status.LOAD_ERROR: "The file could not be loaded as a kernel; fix the exception at the line shown.",
    Status.RUNTIME_ERROR: (
        "The kernel raised an exception or a launch failed; start from the line shown, where it was noticed."
    ),
    Status.CRASHED: "The process died before it answered; look for an invalid memory access or an exit call.",
    Status.TIMEOUT: "No answer came within the time limit; look for an endless loop, or raise --timeout.",
    Status.WRONG_SHAPE: "The output's structure or shape differs from the reference's; allocate it the same way.",
    Status.WRONG_DTYPE: "The output's dtype differs from the reference's; allocate it with that dtype.",
    Status.WRONG_VALUES: "The output's values differ from the reference's; start from the first mismatch shown.",
    Status.REDUCED_PRECISION: (
        "The error has the size of a narrower number format's; compute in full precision, "
        "or allow that format with --precision."
    ),
    Status.MUTATED_INPUT: "The kernel wrote to its inputs or beside them; allocate an output and write only there.",
    Status.NONDETERMINISTIC: "The same input gave different answers; look for a race or a read of unwritten memory.",
    Status.CHEATED: "The result cannot be genuine; the reason says what the judge measured.",
    Status.UNSUPPORTED: "This machine cannot build or run a construct of this kernel; the reason says what it lacks.",
}
