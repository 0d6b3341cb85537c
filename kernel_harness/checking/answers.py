"""Compares a candidate's answer to one call with the right answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from kernel_harness.checking.compared import Expectation, unchecked
from kernel_harness.checking.elementwise import all_finite
from kernel_harness.checking.reference_runs import Answered
from kernel_harness.checking.verify import Check, unchanged, verify
from kernel_harness.core.phases import phase
from kernel_harness.core.precision import Precision, is_inexact
from kernel_harness.core.status import Status
from kernel_harness.ipc import tensors
from kernel_harness.ipc.input_memory import Written
from kernel_harness.workers.worker_client import Answer

# The characters of an output's structure that a message shows. A candidate may return many values or a long text.
_LONGEST_OUTLINE = 500


@phase("comparisons")
def compare(answer: Answer, structure: Any, expectation: Expectation) -> Check:
    """Compares a candidate's answer with the right answer, and returns the verdict as a Check.

    `structure` is the nesting of the right answer's lists, tuples and dictionaries, with its values that are not
    tensors. The structures are compared first, then the tensors and those inputs that the reference changes, and then
    the other inputs (`forbidden_write`). If the shapes are right, and the outputs were not copied (`Answer.outputs`),
    the status is UNSUPPORTED.
    """
    if tensors.skeleton(answer.structure) != tensors.skeleton(structure):
        got = tensors.outline(answer.structure)[:_LONGEST_OUTLINE]
        detail = f"Got the structure {got}, expected {tensors.outline(structure)}."
        return Check(expectation.case, Status.WRONG_SHAPE, detail=detail)
    outputs = with_changed_inputs(answer, expectation.changed, expectation.inputs)
    if [output.shape for output in outputs] != [expected.shape for expected in expectation.expected]:
        return verify(outputs, expectation)  # outputs of any size may not fit into the device's memory
    if any(output.is_meta for output in answer.outputs):
        detail = (
            "The outputs are far larger than in another call of the reference at this size, or have more dimensions "
            "than torch can work with on a GPU, and were not compared."
        )
        return Check(expectation.case, Status.UNSUPPORTED, detail=detail)
    pairs = zip(outputs, expectation.expected, strict=True)
    check = verify([output.to(expected.device) for output, expected in pairs], expectation)
    mutation = forbidden_write(answer.written, expectation.changed)
    return Check(check.case, Status.MUTATED_INPUT, detail=mutation) if check.passed and mutation else check


@phase("comparisons")
def compare_bits(
    answer: Answer, answered: Answered, inputs: Sequence[torch.Tensor], case: str, missing: str = ""
) -> Check | None:  # fmt: skip
    """Returns the check of an answer that is the float32 reference's in every bit, and None for any other answer.

    Such an answer is right, because the error of the reference counts as none: no float64 is needed to say so. Returns
    None, too, if the answer has NaN or infinity, because such an answer may not decide (`Reference.decides`). `inputs`
    are those of the call, and `case` is its name in messages. `missing` is why there is no answer in float64.
    """
    structure, right, changed = answered
    if tensors.skeleton(answer.structure) != tensors.skeleton(structure) or any(o.is_meta for o in answer.outputs):
        return None
    outputs = with_changed_inputs(answer, changed, inputs)
    if len(outputs) != len(right) or not all(map(unchanged, right, outputs)) or not all(map(all_finite, right)):
        return None
    if mutation := forbidden_write(answer.written, changed):
        return Check(case, Status.MUTATED_INPUT, detail=mutation)
    formats = [Precision.of(output.dtype) for output in outputs if is_inexact(output.dtype)]
    skipped = unchecked(outputs, missing)
    shown = None if skipped else max(formats, key=lambda p: p.epsilon, default=None)
    return Check(case, Status.PASSED, precision=shown, unchecked=skipped)


def with_changed_inputs(
    answer: Answer, changed: Sequence[int], inputs: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Returns the outputs of an answer, and then the inputs with the indices `changed` as the call has left them.

    `inputs` are all inputs, as they were before the call. Raises torch.OutOfMemoryError if there was too little memory
    for a copy of such an input.
    """
    missing = next((i for i in changed if i in answer.written.inputs and i not in answer.written.after), None)
    if missing is not None:
        raise torch.OutOfMemoryError(f"There is too little memory for a copy of input {missing + 1}.")
    return [*answer.outputs, *(answer.written.after.get(i, inputs[i]) for i in changed)]


def forbidden_write(written: Written, may_change: Collection[int]) -> str:
    """Returns a sentence about a forbidden write of a call; empty if there was none.

    A call must not change an input that the reference does not change, nor the memory just beside an input.
    `may_change` has the indices of the inputs that the reference changes.
    """
    blamed = next((i for i in written.inputs if i not in may_change), None)
    if blamed is not None:
        return f"Input {blamed + 1} was changed by the call."
    return next((f"Memory just beside input {i + 1} was written to." for i in written.beside), "")
