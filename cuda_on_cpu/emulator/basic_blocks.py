"""The kinds of machine instructions in each basic block of a candidate's library, from a disassembly."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

_LINE = re.compile(r"\s*([0-9a-f]+):\t(\S+)\s*(.*)")
_CALLED = re.compile(r"<([\w.]+)(?:@plt)?(?:\+0x[0-9a-f]+)?>")
_BEGINS = "__sanitizer_cov_trace_pc"
# A scalar or packed operation on floating-point numbers: its name, and its type as the last two letters.
_FLOAT = re.compile(r"v?(\w+?)(ss|sd|ps|pd)")
_VALUES = {"ss": 1, "sd": 1, "ps": 4, "pd": 2}  # in 16 bytes
_WIDER = {"%ymm": 2, "%zmm": 4}
_SUMS, _FUSED = ("add", "sub", "hadd"), ("fmadd", "fmsub", "fnmadd", "fnmsub")
_FMA = re.compile(rf"\tv(?:{'|'.join(_FUSED)})\d+[sp][sd]\b")
_COMPARISONS = ("max", "min", "comi", "ucomi", "cmp")
# The same for instructions. A division in float64 tests with one float32 FMA whether its arguments are extreme. An x86
# reciprocal (rcp) has no exact counterpart.
_SPECIAL = {"sqrt32": 2, "div32": 5, "div64": 1, "sqrt64": 0, "rcp32": 0, "rsqrt32": 0}
# Functions of the emulator for which a GPU has an instruction, such as __expf and rsqrtf.
_APPROXIMATE = "emulator_approximate_"
_INTEGER = re.compile(
    r"(add|sub|adc|sbb|imul|mul|idiv|div|lea|inc|dec|neg|not|and|or|xor|shl|shr|sar|sal|rol|ror|cmp|test|bt|"
    r"set\w+|cmov\w+|popcnt|tzcnt|lzcnt|bsf|bsr|andn|bextr|shlx|shrx|sarx|rorx|mulx)[bwlq]?"
)
# Functions of the C library that a GPU computes with its special function units, without the ending for float, and how
# many float32 FMAs are among the instructions that nvcc 13.0 makes of the float32 function for sm_90, on the path of
# ordinary arguments.
_FUNCTIONS = {
    "exp": 4, "exp2": 0, "exp10": 4, "expm1": 8, "log": 12, "log2": 12, "log10": 12, "log1p": 12, "sin": 9, "cos": 9,
    "sincos": 11, "tan": 9, "asin": 9, "acos": 10, "atan": 9, "atan2": 16, "sinh": 7, "cosh": 3, "tanh": 6, "asinh": 0,
    "acosh": 0, "atanh": 0, "pow": 19, "cbrt": 2, "hypot": 3, "erf": 7, "erfc": 20, "tgamma": 0, "lgamma": 0,
}  # fmt: skip


def kinds(library: Path) -> dict[int, Counter[str]]:
    """Returns a dict from each basic block of the file `library` to the number of its instructions of each kind.

    The key of a basic block is the address behind the call that counts it. The kinds for float32 are `fma32`, `mul32`,
    `add32` (sums and differences) and `other32` (comparisons, minima and maxima), with 64 for float64. `special` are
    divisions, roots and functions such as exp, and `expanded32` the float32 FMAs that nvcc makes of these. Further
    kinds are `convert`, `integer` and `control` (jumps). An operation on a vector counts once for each value. If the
    file has no FMA at all, because the processor has none, a product and a sum in one basic block are one FMA, because
    nvcc contracts a * b + c. Moves and accesses to memory are not counted. Raises OSError if binutils are not
    installed.
    """
    command: list[str | Path] = ["objdump", "-d", "--no-show-raw-insn", library]
    text = subprocess.run(command, capture_output=True, text=True).stdout
    found: dict[int, Counter[str]] = {}
    current: Counter[str] | None = None
    begins = False
    for line in text.splitlines():
        instruction = _LINE.match(line)
        if not instruction:
            if line.endswith(">:"):  # the next function
                current, begins = None, False
            continue
        if begins:
            current = found.setdefault(int(instruction[1], 16), Counter())
        name, operands = instruction[2], instruction[3]
        called = _CALLED.search(operands) if name.startswith("call") else None
        begins = bool(called and called[1] == _BEGINS)
        if current is not None and not begins:
            current.update(_kinds(name, operands, called[1] if called else ""))
    if not _FMA.search(text):
        for counts in found.values():
            _contract(counts)
    return found


def _contract(counts: Counter[str]) -> None:
    for bits in ("32", "64"):
        pairs = min(counts[f"mul{bits}"], counts[f"add{bits}"])
        counts.update({f"fma{bits}": pairs})
        counts.subtract({f"mul{bits}": pairs, f"add{bits}": pairs})


def _kinds(name: str, operands: str, called: str) -> dict[str, int]:
    if called:
        if called.startswith(_APPROXIMATE) or called in _FUNCTIONS:
            return {"special": 1}
        fused = _FUNCTIONS.get(called.removesuffix("f"))
        return {} if fused is None else {"special": 1, "expanded32": fused}
    if name.startswith("j"):
        return {"control": 1}
    if "cvt" in name:
        return {"convert": 1}
    if number := _FLOAT.fullmatch(name):
        return _float_kinds(number[1], number[2], operands)
    return {"integer": 1} if _INTEGER.fullmatch(name) and not _is_zero(name, operands) else {}


def _float_kinds(name: str, form: str, operands: str) -> dict[str, int]:
    values = _VALUES[form]
    if values > 1:
        values *= next((times for register, times in _WIDER.items() if register in operands), 1)
    bits = "32" if form[0:2] in ("ss", "ps") else "64"
    plain = name.rstrip("0123456789")
    if plain in _FUSED:
        return {f"fma{bits}": values}
    if plain == "mul" or plain in _SUMS:
        return {f"{'mul' if plain == 'mul' else 'add'}{bits}": values}
    if plain + bits in _SPECIAL:
        return {"special": values, "expanded32": values * _SPECIAL[plain + bits]}
    return {f"other{bits}": values} if plain in _COMPARISONS else {}


def _is_zero(name: str, operands: str) -> bool:
    """Returns whether an instruction only sets a register to zero: an exclusive or with itself."""
    first, _, second = operands.partition(",")
    return name.startswith("xor") and first == second
