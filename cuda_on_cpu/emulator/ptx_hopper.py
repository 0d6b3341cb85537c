"""The meaning of the instructions of PTX that came with Hopper: mbarriers, bulk copies, clusters and wgmma.

https://docs.nvidia.com/cuda/parallel-thread-execution/ defines the instructions. A function that gets an instruction
with a modifier, a type or an operand that it does not know raises KeyError, ValueError or IndexError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from cuda_on_cpu.emulator import ptx_instructions
from cuda_on_cpu.emulator.ptx_instructions import NAMESPACE, Instruction, ctype, only

_EMULATOR = "::emulator"
_HERE = "EMULATOR_HERE"
_HINT = re.compile(r"L2::\w+")
_SPACES = {"shared", "shared::cta", "shared::cluster"}
_ORDERS = {"cta", "cluster", "acquire", "release", "relaxed"}
_COUNTS_BYTES, _IN_GROUP, _TO_ALL = "mbarrier::complete_tx::bytes", "bulk_group", "multicast::cluster"
_OPERATIONS = {op: f"k{op.capitalize()}" for op in ("add", "min", "max", "inc", "dec", "and", "or", "xor")}
_NUMBERS = {"u32": "kU32", "s32": "kS32", "u64": "kU64", "s64": "kS64", "b32": "kU32", "b64": "kU64", "f16": "kHalf",
            "bf16": "kBfloat16", "f32": "kFloat", "f64": "kDouble"}  # fmt: skip
_FACTORS = {"f16": "kHalf", "bf16": "kBfloat16", "tf32": "kTf32", "e4m3": "kE4M3", "e5m2": "kE5M2", "s8": "kS8",
            "u8": "kU8"}  # fmt: skip
_DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
_SUMS = {"f32": "kFloat", "f16": "kHalf", "s32": "kInteger"}


def _pointer(address: str | list[str]) -> str:
    return f"{address}.at"


def _mbarrier(it: Instruction) -> str:
    operation = it.parts[1]
    only(it.parts[2:], {"expect_tx", "parity", "b64", *_SPACES, *_ORDERS})
    if operation == "init":
        return f"{_EMULATOR}::mbarrier_init({_pointer(it.operands[0])}, {it.read(1, 'u32')}, {_HERE});"
    if operation == "inval":
        return f"{_EMULATOR}::mbarrier_end({_pointer(it.operands[0])}, {_HERE});"
    if operation in ("expect_tx", "complete_tx"):
        sign = "-" if operation == "complete_tx" else ""
        bytes_ = f"{sign}static_cast<std::int64_t>({it.read(1, 'u32')})"
        return f"{_EMULATOR}::mbarrier_expect({_pointer(it.operands[0])}, {bytes_}, {_HERE});"
    if operation == "pending_count":
        return it.write(f"{_EMULATOR}::mbarrier_missing({it.read(1, 'b64')})")
    if operation in ("arrive", "arrive_drop"):
        return _arrive(it)
    if operation not in ("test_wait", "try_wait"):
        raise KeyError(operation)
    state = it.read(2, "u32" if "parity" in it.parts else "b64")
    parity = f"({state} & 1)" if "parity" in it.parts else f"{_EMULATOR}::mbarrier_parity({state})"
    return it.write(f"{_EMULATOR}::mbarrier_wait({_pointer(it.operands[1])}, {parity}, {_HERE})")


def _arrive(it: Instruction) -> str:
    """Returns C++ for an arrival. The state that it results in may be `_`, or missing if the barrier is elsewhere."""
    results = 0 if str(it.operands[0]).startswith(f"{NAMESPACE}::at(") else 1
    barrier, more = _pointer(it.operands[results]), it.operands[results + 1 :]
    drops = "true" if it.parts[1] == "arrive_drop" else "false"
    expects, count = "", "1u"
    if "expect_tx" in it.parts:
        bytes_ = f"static_cast<std::int64_t>({it.read(results + 1, 'u32')})"
        expects = f"{_EMULATOR}::mbarrier_expect({barrier}, {bytes_}, {_HERE}); "
    elif more:
        count = it.read(results + 1, "u32")
    arrival = f"{_EMULATOR}::mbarrier_arrive({barrier}, {count}, {_HERE}, {drops})"
    return expects + (it.write(arrival) if results else f"{arrival};")


def _copy(it: Instruction) -> str:
    """Returns C++ for the bulk copies among the instructions `cp`; for the others, that of `cp.async`."""
    if "bulk" not in it.parts[:4]:
        return ptx_instructions.MEANINGS["cp"](it)
    parts = [part for part in it.parts if not _HINT.fullmatch(part)]
    operands = list(it.operands[: len(it.operands) - (len(parts) < len(it.parts))])  # the last one is the cache's
    if parts[3:] == ["commit_group"]:
        return f"{_EMULATOR}::bulk_commit();"
    if parts[3:4] == ["wait_group"]:
        only(parts[4:], {"read"})
        return f"{_EMULATOR}::bulk_wait({it.read(0, 'u32')}, {_HERE});"
    if parts[3:4] == ["prefetch"]:
        return ""
    return _tensor_copy(parts, operands) if "tensor" in parts else _bulk_copy(parts, operands)


def _bulk_copy(parts: Sequence[str], operands: Sequence[str | list[str]]) -> str:
    reduces = parts[1] == "reduce"
    only(parts[1:], {"async", "bulk", "global", *_SPACES, _COUNTS_BYTES, _IN_GROUP, _TO_ALL,
                      *({"reduce", "noftz", *_OPERATIONS, *_NUMBERS} if reduces else ())})  # fmt: skip
    more = ""
    if reduces:
        (operation,) = (_OPERATIONS[part] for part in parts if part in _OPERATIONS)
        more = _reduction(operation, _NUMBERS[parts[-1]])
    to, source, size = _pointer(operands[0]), _pointer(operands[1]), f"{NAMESPACE}::as<std::uint32_t>({operands[2]})"
    if _IN_GROUP in parts:
        return f"{{ {more}{_EMULATOR}::bulk_store({to}, {source}, {size}, {_HERE}{', &by' * bool(more)}); }}"
    if _COUNTS_BYTES not in parts:
        raise KeyError("bulk")
    mask = f"{NAMESPACE}::as<std::uint16_t>({operands[4]})" if _TO_ALL in parts else "0"
    arguments = f"{to}, {source}, {size}, {_pointer(operands[3])}, {_HERE}, {mask}"
    return f"{{ {more}{_EMULATOR}::bulk_load({arguments}{', &by' * bool(more)}); }}"


def _tensor_copy(parts: Sequence[str], operands: Sequence[str | list[str]]) -> str:
    reduces = parts[1] == "reduce"
    known = {
        "async",
        "bulk",
        "tensor",
        "global",
        "tile",
        _COUNTS_BYTES,
        _IN_GROUP,
        _TO_ALL,
        "1d",
        "2d",
        "3d",
        "4d",
        "5d",
    }
    only(parts[1:], known | _SPACES | ({"reduce", *_OPERATIONS} if reduces else set()))
    if _IN_GROUP in parts:
        more = ""
        if reduces:
            (operation,) = (_OPERATIONS[part] for part in parts if part in _OPERATIONS)
            more = _reduction(operation, "kU32")  # the tensor map has the type
        store = [str(operands[0]), _pointer(operands[1]), _HERE, *(["&by"] if more else [])]
        return f"{{ {more}{_EMULATOR}::tensor_store({', '.join(store)}); }}"
    if _COUNTS_BYTES not in parts or reduces:
        raise KeyError("tensor")
    mask = f", {NAMESPACE}::as<std::uint16_t>({operands[3]})" if _TO_ALL in parts else ""
    return f"{_EMULATOR}::tensor_load({_pointer(operands[0])}, {operands[1]}, {_pointer(operands[2])}, {_HERE}{mask});"


def _reduction(operation: str, type_: str) -> str:
    values = f"{_EMULATOR}::BulkOperation::{operation}, {_EMULATOR}::BulkType::{type_}"
    return f"const {_EMULATOR}::Reduction by{{{values}}}; "


def _store(it: Instruction) -> str:
    """Returns C++ for `st.async` and `red.async`; for the others, that of the instructions without `async`."""
    if it.parts[1] != "async":
        return ptx_instructions.MEANINGS[it.parts[0]](it)
    reduces, type_ = it.parts[0] == "red", it.type
    more = {"relaxed", "cluster", *_OPERATIONS} if reduces else {"weak", "v2", "v4"}
    only(it.parts[2:-1], {_COUNTS_BYTES, "shared::cluster", *more})
    by = ""
    if reduces:
        (operation,) = (_OPERATIONS[part] for part in it.parts if part in _OPERATIONS)
        by = _reduction(operation, _NUMBERS[type_])
    if _COUNTS_BYTES not in it.parts or type_[1:] not in ("32", "64") or (reduces and type_[0] == "f"):
        raise KeyError("async")
    each = it.operands[1] if isinstance(it.operands[1], list) else [it.operands[1]]
    if len(each) != next((int(part[1]) for part in it.parts if part in ("v2", "v4")), 1):
        raise KeyError("vector")
    value = ", ".join(f"{NAMESPACE}::as<{ctype(type_)}>({one})" for one in each)
    to, barrier = _pointer(it.operands[0]), _pointer(it.operands[2])
    arguments = f"{to}, value, sizeof value, {barrier}, {_HERE}{', &by' * reduces}"
    return f"{{ {by}const {ctype(type_)} value[] = {{{value}}}; {_EMULATOR}::async_store({arguments}); }}"


def _mapa(it: Instruction) -> str:
    only(it.parts[1:], {*_SPACES, "u32", "u64"})
    return it.write(f"{NAMESPACE}::mapped({it.read(1)}, {it.read(2, 'u32')})")


def _elect(it: Instruction) -> str:
    only(it.parts[1:], {"sync"})
    result = f"const auto [leader, mine] = {NAMESPACE}::elect({it.read(1, 'b32')});"
    return f"{{ {result} {it.write('leader')} {it.second} = mine; }}"


def _wgmma(it: Instruction) -> str:
    operation = it.parts[1]
    if list(it.parts[2:4]) != ["sync", "aligned"]:
        raise KeyError("wgmma")
    if operation == "fence":
        return ""
    if operation == "commit_group":
        return f"{_EMULATOR}::wgmma_commit({_HERE});"
    if operation == "wait_group":
        return f"{_EMULATOR}::wgmma_wait({it.read(0, 'u32')}, {_HERE});"
    shape = re.fullmatch(r"m64n(\d+)k(\d+)", it.parts[4])
    total, a, b = it.parts[5:8]
    if operation != "mma_async" or not shape or it.parts[8:]:  # `.satfinite` or `.sp`
        raise KeyError("wgmma")
    columns, integers = int(shape[1]), total == "s32"
    same = a == b or {a, b} <= {"e4m3", "e5m2"} or {a, b} <= {"s8", "u8"}
    if columns % 8 or columns > 256 or int(shape[2]) != _DEPTHS[a] or not same or integers != (a in ("s8", "u8")):
        raise KeyError("shape")
    registers, descriptor = it.operands[0], it.operands[1]
    count = columns // (4 if total == "f16" else 2)
    if not isinstance(registers, list) or len(registers) != count or (total == "f16" and a in ("bf16", "tf32")):
        raise KeyError("registers")
    flags = [str(each).rstrip("u") for each in it.operands[4:]]
    scales, transposes = ([], []) if integers else (flags[:2], flags[2:])
    if len(scales) != (0 if integers else 2):
        raise KeyError("scales")
    if isinstance(descriptor, list):
        one, two, three, four = (f"{NAMESPACE}::as<std::uint32_t>({each})" for each in descriptor)
        registers_of_a = f"std::array<std::uint32_t, 4>{{{one}, {two}, {three}, {four}}}.data()"
        first, transposes = f"0, {registers_of_a}", ["0", *transposes]
    else:
        first = f"{NAMESPACE}::as<std::uint64_t>({descriptor}), nullptr"
    negates = [f"{scale} < 0" for scale in scales] or ["false", "false"]
    transposed = [f"({each}) != 0" for each in (*transposes, "0", "0")[:2]]
    kinds = [f"{_EMULATOR}::WgmmaType::{_FACTORS[each]}" for each in (a, b)]
    made = ", ".join([*kinds, f"{_EMULATOR}::WgmmaSum::{_SUMS[total]}", str(columns), *negates, *transposed])
    sums = ", ".join(f"{NAMESPACE}::register_of({each})" for each in registers)
    factors = f"{first}, {it.read(2, 'b64')}, {it.read(3, 'pred')}, {_HERE}"
    return (
        f"{{ std::uint32_t* const sums[] = {{{sums}}}; "
        f"{_EMULATOR}::wgmma_begin({_EMULATOR}::WgmmaShape{{{made}}}, sums, {factors}); }}"
    )


def _registers(it: Instruction) -> str:
    if it.parts[1] not in ("inc", "dec") or list(it.parts[2:]) != ["sync", "aligned", "u32"]:
        raise KeyError("setmaxnreg")
    return f"{NAMESPACE}::check_registers({it.read(0, 'u32')});"


MEANINGS: dict[str, Callable[[Instruction], str]] = {
    "mbarrier": _mbarrier, "cp": _copy, "mapa": _mapa, "elect": _elect, "wgmma": _wgmma, "setmaxnreg": _registers,
    "st": _store, "red": _store,
}  # fmt: skip
