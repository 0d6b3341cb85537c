"""The meaning of the rarer instructions of inline PTX on one thread: funnel shifts, masks, signs, spaces, cache hints.

https://docs.nvidia.com/cuda/parallel-thread-execution/ defines the instructions. A function that gets an instruction
with a modifier, a type or an operand that it does not know raises KeyError, ValueError or IndexError.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from cuda_on_cpu.emulator import ptx_instructions
from cuda_on_cpu.emulator.ptx_instructions import NAMESPACE, Instruction, only

_SPACES = {"global": "kGlobal", "shared": "kShared", "shared::cta": "kShared", "local": "kLocal", "const": "kConstant"}
_KINDS = {"finite": "std::isfinite({0})", "infinite": "std::isinf({0})", "number": "!std::isnan({0})",
          "notanumber": "std::isnan({0})", "subnormal": "(std::fpclassify({0}) == FP_SUBNORMAL)",
          "normal": "(std::isfinite({0}) && std::fpclassify({0}) != FP_SUBNORMAL)"}  # fmt: skip
_NUMBERS = {f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64)} | {"f32", "f64"}
_VIDEO = {"vadd": "({} + {})", "vsub": "({} - {})", "vabsdiff": "std::abs({} - {})", "vmin": "std::min({}, {})",
          "vmax": "std::max({}, {})"}  # fmt: skip
_POLICY = re.compile(r"fractional|range|cvt|global|L2|L2::evict_(?:last|normal|first|unchanged)")


def _clamps(mode: str) -> str:
    """Returns the template argument for the modifier `.clamp` or `.wrap`."""
    return {"clamp": "true", "wrap": "false"}[mode]


def _funnel_shift(it: Instruction) -> str:
    _, direction, mode, type_ = it.parts
    only([direction, type_], {"l", "r", "b32"})
    name = f"__funnelshift_{direction}{'c' if _clamps(mode) == 'true' else ''}"
    return it.write(f"{name}({', '.join(it.read(i, 'u32') for i in (1, 2, 3))})")


def _mask(it: Instruction) -> str:
    _, mode, type_ = it.parts
    only([type_], {"b32"})
    return it.write(f"{NAMESPACE}::bmsk<{_clamps(mode)}>({it.read(1)}, {it.read(2)})")


def _extend(it: Instruction) -> str:
    _, mode, type_ = it.parts
    only([type_], {"u32", "s32"})
    return it.write(f"{NAMESPACE}::szext<{_clamps(mode)}>({it.read(1)}, {it.read(2, 'u32')})")


def _find_bit(it: Instruction) -> str:
    only(it.parts[1:], {"b32"})
    return it.write(f"__fns({it.read(1)}, {it.read(2)}, {it.read(3, 's32')})")


def _is_zero(it: Instruction) -> str:
    only(it.parts[1:], {"b16", "b32", "b64"})
    return it.write(f"({it.read(1)} == 0 ? 1u : 0u)")


def _differences(it: Instruction) -> str:
    only(it.parts[1:], {f"{sign}{bits}" for sign in "us" for bits in (16, 32, 64)})
    return it.write(f"{NAMESPACE}::sad({', '.join(it.read(i) for i in (1, 2, 3))})")


def _select_by_sign(it: Instruction) -> str:
    """Returns C++ for `slct`: the first value if the third one is 0 or above. `.ftz` takes a subnormal number for 0."""
    *flags, type_, condition = it.parts[1:]
    only([type_], _NUMBERS)
    only([condition], {"s32", "f32"})
    only(flags, {"ftz"} if condition == "f32" else set())
    chosen = it.read(3, condition)
    above = f"{chosen} > -std::numeric_limits<float>::min()" if flags else f"{chosen} >= 0"
    return it.write(f"({above} ? {it.read(1, type_)} : {it.read(2, type_)})")


def _copy_sign(it: Instruction) -> str:
    only(it.parts[1:], {"f32", "f64"})
    return it.write(f"std::copysign({it.read(2)}, {it.read(1)})")  # the first operand is the sign


def _test_number(it: Instruction) -> str:
    _, kind, type_ = it.parts
    only([type_], {"f32", "f64"})
    return it.write(_KINDS[kind].format(it.read(1)))


def _extreme(it: Instruction) -> str:
    """Returns C++ for `min` and `max`, which may have `.NaN` and, with floats, `.xorsign.abs`."""
    modifiers = set(it.parts[1:-1])
    if not modifiers & {"NaN", "xorsign", "abs"}:
        return ptx_instructions.MEANINGS[it.parts[0]](it)
    only(sorted(modifiers), {"ftz", "NaN", "xorsign", "abs"})
    only([it.type], {"f32", "f16", "f16x2", "bf16", "bf16x2"})
    if ("xorsign" in modifiers) != ("abs" in modifiers):
        raise KeyError("xorsign")
    flags = ", ".join(str(flag).lower() for flag in (it.parts[0] == "max", "NaN" in modifiers, "abs" in modifiers))
    return it.write(f"{NAMESPACE}::extreme<{flags}>({it.read(1)}, {it.read(2)})")


def _is_in_space(it: Instruction) -> str:
    space = f"::emulator::Space::{_SPACES[it.parts[1]]}"
    address = f"reinterpret_cast<const void*>({it.read(1, 'u64')})"
    return it.write(f"::emulator::is_in_space({space}, {address}, EMULATOR_HERE)")


def _policy(it: Instruction) -> str:
    """Returns C++ for `createpolicy`, whose result only instructions with `L2::cache_hint` read: they ignore it."""
    if it.type != "b64" or not all(_POLICY.fullmatch(part) for part in it.parts[1:-1]):
        raise KeyError("createpolicy")
    return it.write("std::uint64_t{0}")


def _video(it: Instruction) -> str:
    """Returns C++ for a scalar video instruction: of two parts of registers, with a second operation or a merge.

    https://docs.nvidia.com/cuda/parallel-thread-execution/#scalar-video-instructions
    """
    types, rest = it.parts[1:4], list(it.parts[4:])
    for each in types:
        only([each], {"u32", "s32"})
    signed = ["true" if each == "s32" else "false" for each in types]
    to, *sources = (
        str(each) if f"{NAMESPACE}::part(" in each else f"{NAMESPACE}::part({each})" for each in it.operands[:3]
    )
    left, right = (f"{NAMESPACE}::read_part({each}, {sign})" for each, sign in zip(sources, signed[1:], strict=True))
    value = _VIDEO[it.parts[0]].format(left, right)
    if rest[:1] == ["sat"]:
        value = f"{NAMESPACE}::saturated({to}, {signed[0]}, {value})"
        del rest[0]
    if rest:  # the result is a whole register
        (second,) = rest
        third = f"{NAMESPACE}::read_part({NAMESPACE}::part({it.operands[3]}), {signed[0]})"
        value = _VIDEO[{"add": "vadd", "min": "vmin", "max": "vmax"}[second]].format(value, third)
    merged = it.operands[3] if len(it.operands) == 4 and not rest else "0u"
    return f"{NAMESPACE}::merge({to}, {value}, {merged});"


def _hint(it: Instruction) -> str:
    only(it.parts[1:], {"global", "L2", "L2::evict_normal"})
    return ""


def _event(it: Instruction) -> str:
    only(it.parts[1:], {"mask"})
    return ""


MEANINGS: dict[str, Callable[[Instruction], str]] = {
    "shf": _funnel_shift, "bmsk": _mask, "szext": _extend, "fns": _find_bit, "cnot": _is_zero, "sad": _differences,
    "slct": _select_by_sign, "copysign": _copy_sign, "testp": _test_number, "isspacep": _is_in_space,
    "min": _extreme, "max": _extreme, "createpolicy": _policy, "discard": _hint, "applypriority": _hint,
    "pmevent": _event, **dict.fromkeys(_VIDEO, _video),
}  # fmt: skip
