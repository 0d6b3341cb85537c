"""The meaning of each instruction of inline PTX that the emulator knows, as C++ that calls emulator/ptx.h.

https://docs.nvidia.com/cuda/parallel-thread-execution/ defines the instructions. A function that gets an instruction
with a modifier, a type or an operand that it does not know raises KeyError, ValueError or IndexError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NAMESPACE = "::emulator::ptx"
_TYPES = {
    **{f"{kind}{bits}": f"std::uint{bits}_t" for kind in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"std::int{bits}_t" for bits in (8, 16, 32, 64)},
    "f32": "float", "f64": "double", "f16": "__half", "bf16": "__nv_bfloat16", "f16x2": "__half2",
    "bf16x2": "__nv_bfloat162", "pred": "bool",
}  # fmt: skip
_INTEGER = re.compile(r"[bsu](?:8|16|32|64)")
_SCOPES = {"cta", "gpu", "sys", "cluster", "relaxed", "acquire", "release", "acq_rel", "sc", "volatile", "weak"}
_HINTED = "L2::cache_hint"  # the last operand is a policy for the cache
_HINT = re.compile(r"ca|cg|cs|lu|cv|wb|wt|nc|L1::\w+|L2::\w+")
_SPACES = {"global", "shared", "shared::cta", "shared::cluster", "const", "local"}
_ROUNDS = {"rn": "rn", "rz": "rz", "rm": "rd", "rp": "ru"}
_UNARY = {
    "neg": "-{0}", "abs": "fabsf({0})", "ex2": "exp2f({0})", "lg2": "log2f({0})", "rcp": "1.0f / {0}",
    "sqrt": "sqrtf({0})", "rsqrt": "1.0f / sqrtf({0})", "sin": "__sinf({0})", "cos": "__cosf({0})",
    "tanh": "__tanhf({0})",
}  # fmt: skip
_FLOATS = {"add": "__fadd_{1}", "mul": "__fmul_{1}", "sub": "__fsub_{1}", "fma": "__fmaf_{1}", "div": "__fdiv_{1}"}
_DOUBLES = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "min": "fmin({0}, {1})",
            "max": "fmax({0}, {1})", "fma": "fma({0}, {1}, {2})"}  # fmt: skip
_INTEGERS = {"add": "{0} + {1}", "sub": "{0} - {1}", "min": "({0} < {1} ? {0} : {1})", "max": "({0} < {1} ? {1} : {0})",
             "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}"}  # fmt: skip
_COMPARES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">",
             "hs": ">="}  # fmt: skip
_ATOMICS = {"add": "atomicAdd", "min": "atomicMin", "max": "atomicMax", "and": "atomicAnd", "or": "atomicOr",
            "xor": "atomicXor", "exch": "atomicExch", "cas": "atomicCAS", "inc": "atomicInc",
            "dec": "atomicDec"}  # fmt: skip
_ATOMIC_TYPES = {"b32": "unsigned", "u32": "unsigned", "s32": "int", "u64": "unsigned long long",
                 "b64": "unsigned long long", "f32": "float", "f64": "double"}  # fmt: skip


@dataclass(frozen=True)
class Instruction:
    """An instruction: its parts, such as `ld`, `global` and `f32`, and the C++ text of its operands.

    An operand in braces is a list of texts. An address has the text of a call of `ptx::at`. `second` is the second
    result, such as the predicate in `%0|p`; empty if there is none.
    """

    parts: Sequence[str]
    operands: Sequence[str | list[str]]
    second: str = ""

    @property
    def type(self) -> str:
        """Returns the PTX type of the instruction, which is its last part: `f32`."""
        return self.parts[-1]

    def read(self, i: int, type_: str | None = None) -> str:
        """Returns C++ for operand `i` as a value of a PTX type, by default of the instruction's type."""
        operand = self.operands[i]
        return f"{NAMESPACE}::as<{ctype(type_ or self.type)}>({_text(operand)})"

    def write(self, value: str) -> str:
        """Returns C++ that stores `value` in the first operand, or only computes it if the operand is `ptx::sink`."""
        return f"{NAMESPACE}::put({_text(self.operands[0])}, {value});"


def ctype(type_: str) -> str:
    """Returns the C++ type of a PTX type. Raises KeyError for another text."""
    return _TYPES[type_]


def _text(operand: str | list[str]) -> str:
    if isinstance(operand, list):
        return f"std::forward_as_tuple({', '.join(operand)})"
    return operand


def only(parts: Sequence[str], allowed: set[str]) -> None:
    """Raises KeyError if `parts` has another part than those in `allowed`."""
    for part in parts:
        if part not in allowed:
            raise KeyError(part)


def _mov(it: Instruction) -> str:
    only(it.parts[1:-1], set())
    if isinstance(it.operands[0], list) or isinstance(it.operands[1], list):
        return f"{NAMESPACE}::repack<{ctype(it.type)}>({_text(it.operands[0])}, {_text(it.operands[1])});"
    return it.write(it.read(1))


def _arithmetic(it: Instruction) -> str:
    op, type_ = it.parts[0], it.type
    middle = set(it.parts[1:-1])
    count = 3 if op == "fma" else 2
    if (_INTEGER.fullmatch(type_) and middle == {"cc"}) or op in ("addc", "subc"):
        return _carried(it)
    if _INTEGER.fullmatch(type_):
        only(sorted(middle), set())
        return it.write(f"static_cast<{ctype(type_)}>({_INTEGERS[op].format(it.read(1), it.read(2))})")
    only(sorted(middle), {*_ROUNDS, "ftz", "full", "approx"})
    if type_ == "f32" and op in _FLOATS:
        rounding = next((_ROUNDS[part] for part in it.parts if part in _ROUNDS), "rn")
        arguments = ", ".join(it.read(1 + i) for i in range(count))
        return it.write(f"{_FLOATS[op].format('', rounding)}({arguments})")
    if type_ == "f64" and op in _DOUBLES:
        only(sorted(middle), {"rn"})
        return it.write(_DOUBLES[op].format(*(it.read(1 + i) for i in range(count))))
    if type_ == "f32" and op in ("min", "max"):
        return it.write(f"f{op}f({it.read(1)}, {it.read(2)})")
    if type_ in ("f16x2", "bf16x2", "f16", "bf16"):
        two = "2" if type_.endswith("x2") else ""
        name = {"add": "add", "sub": "sub", "mul": "mul", "fma": "fma", "min": "min", "max": "max"}[op]
        return it.write(f"__h{name}{two}({', '.join(it.read(1 + i) for i in range(count))})")
    raise KeyError(type_)


def _carried(it: Instruction) -> str:
    """Returns C++ for a sum or difference of integers that sets the carry flag (`.cc`), reads it, or both."""
    only(it.parts[1:-1], {"cc"})
    if it.type not in ("u32", "s32", "b32", "u64", "s64", "b64"):
        raise KeyError(it.type)
    name = "sum" if it.parts[0].startswith("add") else "difference"
    reads, sets = it.parts[0] in ("addc", "subc"), "cc" in it.parts
    bits = f"u{it.type[1:]}"
    flags = f"<{'true' if reads else 'false'}, {'true' if sets else 'false'}>"
    return it.write(f"{NAMESPACE}::{name}{flags}({it.read(1, bits)}, {it.read(2, bits)})")


def _multiply(it: Instruction) -> str:
    """Returns C++ for `mul`, `mad` and `madc`. `lo` and `hi` are the halves of a product of integers, `wide` is all."""
    if not _INTEGER.fullmatch(it.type):
        return _arithmetic(it)
    carries = "cc" in it.parts or it.parts[0] == "madc"
    only(it.parts[1:-1], {"lo", "wide", "hi", *(["cc"] if carries else [])})
    bits, sign = int(it.type[1:]), it.type[0]
    wide = f"{'' if sign == 's' else 'unsigned '}__int128" if bits == 64 else _TYPES[f"{sign}{2 * bits}"]
    if not it.parts[1:-1] or (it.parts[1] == "wide" and (bits == 64 or carries)):
        raise KeyError(it.type)
    product = f"static_cast<{wide}>({it.read(1)}) * static_cast<{wide}>({it.read(2)})"
    part, result = it.parts[1], ctype(it.type)
    value = {"lo": f"static_cast<{result}>({product})", "wide": f"({product})",
             "hi": f"static_cast<{result}>(({product}) >> {bits})"}[part]  # fmt: skip
    if carries:
        flags = f"<{'true' if it.parts[0] == 'madc' else 'false'}, {'true' if 'cc' in it.parts else 'false'}>"
        unsigned = ctype(f"u{bits}")
        return it.write(f"{NAMESPACE}::sum{flags}(static_cast<{unsigned}>({value}), {it.read(3, f'u{bits}')})")
    if it.parts[0] == "mad":
        value = f"{value} + {it.read(3, f'{sign}{2 * bits}' if part == 'wide' else None)}"
    return it.write(value)


def _unary(it: Instruction) -> str:
    if _INTEGER.fullmatch(it.type):
        only(it.parts[1:-1], set())
        value = it.read(1)
        return it.write({"neg": f"(0 - {value})", "abs": f"({value} < 0 ? 0 - {value} : {value})"}[it.parts[0]])
    only(it.parts[1:-1], {"approx", "ftz", "rn"})
    if it.type == "f64" and it.parts[0] in ("neg", "abs", "rcp", "sqrt") and "approx" not in it.parts:
        value = it.read(1)
        return it.write({"neg": f"-{value}", "abs": f"fabs({value})", "rcp": f"1.0 / {value}",
                         "sqrt": f"sqrt({value})"}[it.parts[0]])  # fmt: skip
    if it.type != "f32":
        raise KeyError(it.type)
    return it.write(_UNARY[it.parts[0]].format(it.read(1)))


def _shift(it: Instruction) -> str:
    left = it.parts[0] == "shl"
    return it.write(f"{NAMESPACE}::shift_{'left' if left else 'right'}({it.read(1)}, {it.read(2, 'u32')})")


def _lop3(it: Instruction) -> str:
    only(it.parts[1:], {"b32"})
    return it.write(f"{NAMESPACE}::lop3({', '.join(it.read(i, 'b32') for i in range(1, 5))})")


def _prmt(it: Instruction) -> str:
    only(it.parts[1:], {"b32"})
    return it.write(f"__byte_perm({', '.join(it.read(i, 'b32') for i in range(1, 4))})")


def _bits(it: Instruction) -> str:
    """Returns C++ for an instruction on the bits of an integer. `popc`, `clz` and `bfind` have results of 32 bits."""
    op, type_ = it.parts[0], it.type
    only(it.parts[1:-1], set())
    allowed = {"bfe": ("u32", "s32", "u64", "s64"), "bfind": ("u32", "s32", "u64", "s64")}.get(op, ("b32", "b64"))
    if type_ not in allowed:
        raise KeyError(type_)
    count = {"bfe": 3, "bfi": 4}.get(op, 1)
    types = [type_, type_] if op == "bfi" else [type_]
    types += ["u32"] * (count - len(types))
    values = ", ".join(it.read(1 + i, kind) for i, kind in enumerate(types))
    return it.write(f"~{values}" if op == "not" else f"{NAMESPACE}::{op}({values})")


def _divide(it: Instruction) -> str:
    """Returns C++ for `div` and `rem` of integers, and `div` of floats."""
    if not _INTEGER.fullmatch(it.type):
        return _arithmetic(it)
    only(it.parts[1:-1], set())
    return it.write(f"{it.read(1)} {'/' if it.parts[0] == 'div' else '%'} {it.read(2)}")


def _dot(it: Instruction) -> str:
    if it.parts[1:] not in (["u32", "u32"], ["s32", "s32"]):
        raise KeyError("dp4a")
    kind = it.type
    return it.write(f"__dp4a({', '.join(it.read(i, kind) for i in (1, 2, 3))})")


def _shuffle(it: Instruction) -> str:
    if it.parts[1] != "sync" or it.type != "b32":
        raise KeyError("shfl")
    mode = {"up": "kUp", "down": "kDown", "bfly": "kButterfly", "idx": "kIndex"}[it.parts[2]]
    values = ", ".join(it.read(i, "b32") for i in (1, 2, 3, 4))
    result = f"const auto [value, valid] = {NAMESPACE}::shuffle({NAMESPACE}::{mode}, {values});"
    return f"{{ {result} {it.write('value')} {f'{it.second} = valid;' if it.second else ''} }}"


def _vote(it: Instruction) -> str:
    if it.parts[1] != "sync" or it.parts[2:] not in (
        ["ballot", "b32"],
        ["any", "pred"],
        ["all", "pred"],
        ["uni", "pred"],
    ):
        raise KeyError("vote")
    return it.write(f"__{it.parts[2]}_sync({it.read(2, 'b32')}, {it.read(1, 'pred')})")


def _redux(it: Instruction) -> str:
    if it.parts[1] != "sync" or it.type not in ("u32", "s32", "b32"):
        raise KeyError("redux")
    op = {"add": "add", "min": "min", "max": "max", "and": "and", "or": "or", "xor": "xor"}[it.parts[2]]
    return it.write(f"__reduce_{op}_sync({it.read(2, 'b32')}, {it.read(1)})")


def _match(it: Instruction) -> str:
    if it.parts[1:3] != ["any", "sync"] or it.type not in ("b32", "b64"):
        raise KeyError("match")
    kind = "unsigned" if it.type == "b32" else "unsigned long long"
    return it.write(f"__match_any_sync({it.read(2, 'b32')}, static_cast<{kind}>({it.read(1)}))")


def _active(it: Instruction) -> str:
    return it.write("__activemask()")


def _setp(it: Instruction) -> str:
    only(it.parts[2:-1], set())
    a, b = it.read(1), it.read(2)
    if it.parts[1] == "ne" and not _INTEGER.fullmatch(it.type):  # a comparison with NaN is false, this one too
        return it.write(f"({a} < {b} || {a} > {b})")
    return it.write(f"({a} {_COMPARES[it.parts[1]]} {b})")


def _selp(it: Instruction) -> str:
    return it.write(f"({_text(it.operands[3])} ? {it.read(1)} : {it.read(2)})")


def _cvta(it: Instruction) -> str:
    return it.write(it.read(1))


_FP8 = {"e4m3x2": "::emulator::E4M3", "e5m2x2": "::emulator::E5M2"}


def _cvt_fp8(it: Instruction, to: str, source: str, middle: set[str]) -> str:
    """Returns C++ for a conversion to two FP8 numbers, of two floats or of two halves, or from them to two halves."""
    if source in _FP8:
        if to != "f16x2" or middle != {"rn"}:
            raise KeyError(to)
        return it.write(f"{NAMESPACE}::from_fp8_pair<{_FP8[source]}>({it.read(1, 'b16')})")
    if middle - {"relu"} != {"rn", "satfinite"} or source not in ("f32", "f16x2"):
        raise KeyError(source)
    pair = f"{it.read(1, 'f32')}, {it.read(2, 'f32')}" if source == "f32" else None
    if pair is None:
        value = it.read(1, "f16x2")
        pair = f"__high2float({value}), __low2float({value})"
    relu = "true" if "relu" in middle else "false"
    return it.write(f"{NAMESPACE}::to_fp8_pair<{_FP8[to]}>({pair}, {relu})")


def _cvt(it: Instruction) -> str:
    to, source = it.parts[-2:]
    middle = list(it.parts[1:-2])
    if (to, source, middle) == ("tf32", "f32", ["rna"]):
        return it.write(f"{NAMESPACE}::rounded_to_tf32({it.read(1)})")
    if to in ("f16x2", "bf16x2") and source == "f32" and middle == ["rn"]:
        make = "__floats2half2_rn" if to == "f16x2" else "__floats2bfloat162_rn"
        return it.write(f"{make}({it.read(2, 'f32')}, {it.read(1, 'f32')})")  # the first operand is the upper half
    if to in _FP8 or source in _FP8:
        return _cvt_fp8(it, to, source, set(middle))
    only(middle, {"rn", "rzi", "rni", "ftz"})
    value = it.read(1, source)
    if source in ("f16", "bf16"):
        value, source = f"static_cast<float>(::emulator::widened({value}))", "f32"
    if to in ("f16", "bf16") and source == "f32":
        return it.write(f"{'__float2half_rn' if to == 'f16' else '__float2bfloat16_rn'}({value})")
    if source in ("f32", "f64") and _INTEGER.fullmatch(to):
        only(middle, {"rzi", "rni", "ftz"})
        whole = f"{'std::trunc' if 'rzi' in middle else 'std::nearbyint'}({value})"
        return it.write(f"{NAMESPACE}::saturated<{ctype(to)}>({whole})")
    if to in ("f16", "bf16") or to not in _TYPES:
        raise KeyError(to)
    return it.write(f"static_cast<{ctype(to)}>({value})")


def _memory(it: Instruction) -> str:
    """Returns C++ for a load or a store, of one number or of a vector. Cache hints are ignored."""
    wide = {"v2": 2, "v4": 4}
    middle = [part for part in it.parts[1:-1] if part not in wide and not _HINT.fullmatch(part)]
    only(middle, _SPACES | _SCOPES)
    load = it.parts[0] == "ld"
    values, address = (it.operands[0], it.operands[1]) if load else (it.operands[1], it.operands[0])
    count = next((wide[part] for part in it.parts if part in wide), 1)
    each = values if isinstance(values, list) else [values]
    if len(each) != count:
        raise KeyError("vector")
    return f"{NAMESPACE}::{'load' if load else 'store'}<{ctype(it.type)}>({address}, {', '.join(each)});"


def _atomic(it: Instruction) -> str:
    reduces = it.parts[0] == "red"
    op = next((part for part in it.parts[1:-1] if part in _ATOMICS), "")
    only([part for part in it.parts[1:-1] if part not in (op, _HINTED)], _SPACES | _SCOPES)
    kind = _ATOMIC_TYPES[it.type]
    address = _text(it.operands[0 if reduces else 1])
    end = len(it.operands) - (_HINTED in it.parts)
    values = "".join(f", {NAMESPACE}::as<{kind}>({_text(each)})" for each in it.operands[1 if reduces else 2 : end])
    call = f"{_ATOMICS[op]}({address}.template as<{kind}>(){values})"
    return f"{call};" if reduces else it.write(call)


def _barrier(it: Instruction) -> str:
    if it.parts[1:] == ["warp", "sync"]:
        return f"__syncwarp({it.read(0, 'b32')});"
    if it.parts[1] == "cluster":
        only(it.parts[3:], {"acquire", "release", "relaxed", "aligned"})
        meanings = {"arrive": "cluster_arrive()", "wait": "cluster_wait(EMULATOR_HERE)"}
        return f"::emulator::{meanings[it.parts[2]]};"
    parts = [part for part in it.parts[1:] if part not in ("cta", "aligned")]
    if parts == ["sync"] and list(it.operands) == ["0u"]:
        return "__syncthreads();"
    if parts not in (["sync"], ["arrive"]) or len(it.operands) > 2:
        raise KeyError("barrier")
    threads = it.read(1, "u32") if len(it.operands) == 2 else "blockDim.x * blockDim.y * blockDim.z"
    waits = "true" if parts == ["sync"] else "false"
    return f"::emulator::meet_at_barrier({it.read(0, 'u32')}, {threads}, {waits});"


def _fence(it: Instruction) -> str:
    # Accesses are in order, so only the sanitizer distinguishes the kinds.
    known = {"gl", "proxy", "async", "alias", "tensormap::generic", "mbarrier_init", *_SPACES}
    only(it.parts[1:], known | _SCOPES)
    return "::emulator::fence_proxy_async();" if {"proxy", "async"} <= set(it.parts) else "__threadfence();"


def _async_copy(it: Instruction) -> str:
    parts = [part for part in it.parts[2:] if not _HINT.fullmatch(part)]
    if parts == ["commit_group"]:
        return f"{NAMESPACE}::async_commit();"
    if parts == ["wait_group"]:
        return f"{NAMESPACE}::async_wait({NAMESPACE}::constant<{_text(it.operands[0])}>);"
    if parts == ["wait_all"]:
        return f"{NAMESPACE}::async_commit(); {NAMESPACE}::async_wait(0);"
    spaces = (["shared", "global"], ["shared::cta", "global"])
    if it.parts[1:4] == ["async", "mbarrier", "arrive"]:
        only(it.parts[4:], {"noinc", "shared", "shared::cta", "b64"})
        counts = "true" if "noinc" in it.parts else "false"
        return f"::emulator::async_arrive({it.operands[0]}.at, {counts}, EMULATOR_HERE);"
    if it.parts[1] != "async" or parts not in spaces or len(it.operands) > 4:
        raise KeyError("cp")
    to, start, size, *source = map(_text, it.operands)
    only([it.parts[2]], {"ca", "cg"})
    return f"{NAMESPACE}::copy_{it.parts[2]}<{size}>({', '.join((to, start, *source))});"


def _ldmatrix(it: Instruction) -> str:
    return _move_matrices(it, "load_matrices", it.operands[0], it.operands[1])


def _stmatrix(it: Instruction) -> str:
    return _move_matrices(it, "store_matrices", it.operands[1], it.operands[0])


def _move_matrices(it: Instruction, function: str, registers: str | list[str], row: str | list[str]) -> str:
    """Returns C++ that moves matrices between registers and the rows in shared memory, of which `row` is a lane's."""
    only(it.parts[1:], {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"})
    if not isinstance(registers, list) or f"x{len(registers)}" not in it.parts:
        raise KeyError("registers")
    transposed = "true" if "trans" in it.parts else "false"
    # Only the lanes that have a row form its address.
    return f"{NAMESPACE}::{function}<{transposed}>([&] {{ return {_text(row)}; }}, {', '.join(registers)});"


# The number types of A and B, and the depths of the products that exist for them.
_FACTORS = {"f16": ("Half", {8, 16}), "bf16": ("Bfloat16", {8, 16}), "tf32": ("Tf32", {4, 8}), "s8": ("Int8", {16, 32}),
            "u8": ("Uint8", {16, 32}), "f64": ("Float64", {4, 8, 16}), "e4m3": ("Fp8<::emulator::E4M3>", {16, 32}),
            "e5m2": ("Fp8<::emulator::E5M2>", {16, 32})}  # fmt: skip


def _mma(it: Instruction) -> str:
    shape = re.fullmatch(r"m16n8k(\d+)", it.parts[3])
    rest = list(it.parts[6:])
    if list(it.parts[1:3]) != ["sync", "aligned"] or not shape or list(it.parts[4:6]) != ["row", "col"]:
        raise KeyError("mma")
    if rest[:1] == ["satfinite"]:
        raise KeyError("satfinite")
    d, a, b, c = rest
    factor, depths = _FACTORS[a]
    halves = {"f16", "f32"}
    known = {"s8": {"s32"}, "u8": {"s32"}, "f64": {"f64"}, "f16": halves, "e4m3": halves, "e5m2": halves}
    sums = known.get(a, {"f32"})
    if a != b or d != c or d not in sums or int(shape[1]) not in depths:
        raise KeyError("types")
    lists = [f"std::forward_as_tuple({', '.join(operand)})" for operand in it.operands if isinstance(operand, list)]
    if len(lists) != 4:
        raise KeyError("operands")
    total = {"f16": "HalfSum", "f32": "float", "f64": "double", "s32": "std::int32_t"}[d]
    where = f"{NAMESPACE}::" if d == "f16" else ""
    return f"{NAMESPACE}::multiply<{NAMESPACE}::{factor}, {shape[1]}, {where}{total}>({', '.join(lists)});"


def _nothing(it: Instruction) -> str:
    return ""


def _trap(it: Instruction) -> str:
    return "__trap();"


def _pause(it: Instruction) -> str:
    return "::emulator::yield();"


MEANINGS: dict[str, Callable[[Instruction], str]] = {
    "mov": _mov, "mul": _multiply, "mad": _multiply, "shl": _shift, "shr": _shift, "lop3": _lop3, "prmt": _prmt,
    "setp": _setp, "selp": _selp, "cvt": _cvt, "cvta": _cvta, "ld": _memory, "st": _memory, "red": _atomic,
    "atom": _atomic, "bar": _barrier, "barrier": _barrier, "membar": _fence, "fence": _fence, "cp": _async_copy,
    "ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "mma": _mma, "prefetch": _nothing, "nanosleep": _pause,
    "trap": _trap, "griddepcontrol": _nothing, "div": _divide, "rem": _divide,
    "dp4a": _dot, "shfl": _shuffle, "vote": _vote, "redux": _redux, "match": _match, "activemask": _active,
    "madc": _multiply,
    **dict.fromkeys(["popc", "clz", "brev", "bfind", "bfe", "bfi", "not"], _bits),
    **dict.fromkeys(["add", "sub", "addc", "subc", "fma", "min", "max", "and", "or", "xor"], _arithmetic),
    **dict.fromkeys(_UNARY, _unary),
}  # fmt: skip
