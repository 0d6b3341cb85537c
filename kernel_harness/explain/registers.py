"""Finds local variables of a CUDA source that a kernel adds to, and that have no value before.

Compilers warn of such a variable, but g++ 12 and nvcc not of an array, such as the sums of a tile. On a GPU and under
emulation, a register holds what was there before, so the mistake shows in some threads only.
"""

from __future__ import annotations

import re

from cuda_on_cpu.compile.cuda_source import Kind, tokenize
from kernel_harness.core.remark import Remark, RemarkKind

# A declaration without a value, at the start of a statement: its names, each with the lengths of its array, if any.
_DECLARED = re.compile(
    r"(?<=[;{}])\s*(?:float|double|int|unsigned|long|half|__half|(?:u?int\d+|acc|scalar|accscalar)_t|float[24]|"
    r"(?:__)?nv_bfloat16)\s+"
    r"(?P<names>\w+(?:\s*\[[^\]\[;{}]*\])*(?:\s*,\s*\w+(?:\s*\[[^\]\[;{}]*\])*)*)\s*;"
)
_ADDS = re.compile(r"\s*(?:[-+*/|&^]=|\+\+|--)")
_VALUE = re.compile(r"\s*=(?!=)([^;=]*);")
_IN_CODE = re.compile(r"[);{}]\s*$|\belse\s*$")  # what stands before a block of statements, not before a class
_INDEX = r"(?:\s*\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|\s*\.\s*[xyzw]\b)*"


def remark(source: str) -> Remark | None:
    """Returns a remark on the first variable that a kernel of the source adds to without a value before, or None.

    `source` is the text of the candidate's file. A variable that is assigned to, or whose address is taken, anywhere
    in its block does not count.
    """
    code = "".join(token.plain if token.kind is Kind.COMMENT else token.text for token in tokenize(source))
    for declared in _DECLARED.finditer(code):
        opening = _brace(code, declared.start() - 1, -1)
        is_in_code = opening is not None and _IN_CODE.search(code[:opening])
        block = code[declared.end() : _brace(code, declared.end(), 1)] if is_in_code else ""
        for name, lengths in re.findall(r"(\w+)((?:\s*\[[^\]]*\])*)", declared["names"]):
            added = _added_to(name, block, is_array=bool(lengths))
            if added is not None:
                line = _line(code, declared.start("names"))
                text = (
                    f"Line {line}: {name} has no value before line {_line(code, declared.end() + added)} uses it, so "
                    "each result begins with what was in the register."
                )
                first = f"{name}{lengths} = {{}}" if lengths else f"{name} = 0"
                return Remark(RemarkKind.MISTAKE, text, line, f"give {name} its first value, such as {first}")
    return None


def _added_to(name: str, block: str, *, is_array: bool) -> int | None:
    """Returns where `block` first changes a variable by its own value; None if it does not, or may give it a value."""
    uses = list(re.finditer(rf"(?<![\w.>]){re.escape(name)}\b{_INDEX}", block))
    values = [value for use in uses if (value := _VALUE.match(block, use.end()))]
    own = [v for v in values if re.search(rf"(?<![\w.>]){re.escape(name)}\b(?!\s*\()", v[1])]
    added = [u for u in uses if _ADDS.match(block, u.end()) or u.end() in [v.start() for v in own]]
    others = [u for u in uses if u not in added and not any(v.start() < u.start() < v.end() for v in own)]
    given = added and any(
        _may_give_a_value(block, use, whole=is_array and use[0] == name, late=use.start() > added[0].start())
        for use in others
    )
    return added[0].start() if added and not given else None


def _may_give_a_value(block: str, use: re.Match[str], *, whole: bool, late: bool) -> bool:
    """Returns whether a use may give the variable a value: an assignment, its address, or an argument of a call.

    An argument of a call counts if it is a `whole` array, or if it is not `late`: not after the variable has changed.
    A late assignment counts only within another statement, such as a loop that has both: one turn of the loop may
    assign, and the next one change the variable.
    """
    before, after = block[: use.start()].rstrip(), block[use.end() :].lstrip()
    is_assigned = after.startswith("=") and not after.startswith("==") and not (late and _is_statement(before))
    is_passed = before.endswith(("(", ",")) and after.startswith((",", ")"))
    may_change = is_passed and (whole or not late or before[:-1].rstrip().endswith('"'))
    return is_assigned or may_change or before.endswith(("&", ">>"))


def _is_statement(before: str) -> bool:
    """Returns whether the code after `before` begins a statement of its own in the block that `before` begins."""
    return before.endswith((";", "}")) and before.count("{") == before.count("}")


def _brace(code: str, at: int, step: int) -> int | None:
    """Returns where the block around the index `at` ends (`step` 1) or begins (-1); None if it does not."""
    depth = 0
    for i in range(at, len(code) if step > 0 else -1, step):
        depth += step * ((code[i] == "{") - (code[i] == "}"))
        if depth < 0:
            return i
    return None


def _line(code: str, at: int) -> int:
    return code.count("\n", 0, at) + 1
