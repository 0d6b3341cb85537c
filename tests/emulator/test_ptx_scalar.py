"""Inline PTX on the numbers of one thread, against the definitions of the PTX ISA; its questions about the launch."""

from __future__ import annotations

import itertools
import math
from types import ModuleType

import numpy as np
import pytest
import torch
from support.emulated_process import emulated, extension, inside  # noqa: F401 - a fixture

from cuda_on_cpu.api import reached_lack

ONES = 0xFFFFFFFF


def ops() -> ModuleType:
    return extension("ptx_scalar")


# ------------------------------------------------------------------------------------------------ integers


def i32(word: int) -> int:
    return ((word & ONES) ^ 0x80000000) - 0x80000000


def i16(word: int) -> int:
    return ((word & 0xFFFF) ^ 0x8000) - 0x8000


def shf(left: bool, low: int, high: int, by: int) -> int:
    both = high << 32 | low
    return both << by >> 32 & ONES if left else both >> by & ONES


def bmsk(start: int, bits: int, clamps: bool) -> int:
    mask, end = ONES << (start & 31) & ONES, (start & 31) + (bits & 31)
    if clamps and start >= 32:
        mask = 0
    behind = 0 if end >= 32 or (clamps and (start >= 32 or bits >= 32)) else ONES << end
    return mask & ~behind


def szext(word: int, bits: int, clamps: bool, signed: bool) -> int:
    if clamps and bits >= 32:
        return word
    bits &= 31
    value = word & ((1 << bits) - 1)
    return value - (1 << bits) & ONES if signed and bits and value >> bits - 1 else value


def fns(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else ONES
    places = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [place for place in places if mask >> place & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else ONES


def as_float(word: int) -> float:
    return float(np.array(word, dtype=np.uint32).view(np.float32))


def rows_of_words(a: int, b: int, c: int) -> list[int]:
    wide = abs((a << 32) - (b << 32 | 1)) + c
    chosen = as_float(c)
    return [
        shf(True, a, b, c & 31), shf(True, a, b, min(c, 32)), shf(False, a, b, c & 31), shf(False, a, b, min(c, 32)),
        bmsk(b, c, False), bmsk(b, c, True),
        szext(a, c, False, False), szext(a, c, True, False), szext(a, c, False, True), szext(a, c, True, True),
        int(a == 0), int(a & 0xFFFF == 0),
        abs(a - b) + c, abs(i32(a) - i32(b)) + c,
        abs((a & 0xFFFF) - (b & 0xFFFF)) + c & 0xFFFF, abs(i16(a) - i16(b)) + c & 0xFFFF,
        a if i32(c) >= 0 else b, a if chosen >= 0 else b, a if chosen > -(2.0**-126) else b,
        (wide >> 32 ^ wide) & ONES, int(a == 0), fns(a, b & 31, (c & 15) - 8),
        (a >> 8 & 255) + (b >> 16),
        (c & 0xFFFF0000) | (min(max(i32(a) - (b >> 24), -0x8000), 0x7FFF) & 0xFFFF),
        abs(i16(a) - i16(b >> 16)) + c,
        max(min(a >> 16 & 255, i32(b)), i32(c)),
        (c & 0xFF00FFFF) | min(max(i16(a >> 16), b, 0), 255) << 16,
        max(a - b, 0),
    ]  # fmt: skip


@emulated
def test_shifts_masks_and_differences_of_integers_have_their_definition():
    edges = [0, 1, 5, 12, 31, 32, 33, 63, 64, 255, 0x10000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFF800001, ONES]
    drawn = np.random.default_rng(0).integers(0, 2**32, (300, 3)).tolist()
    numbers = [*itertools.product(edges, edges, edges), *drawn]
    a, b, c = (torch.tensor(column).to(torch.int32).cuda() for column in zip(*numbers, strict=True))
    got = (ops().words(a, b, c).cpu().long() & ONES).T.tolist()
    expected = [[word & ONES for word in rows_of_words(*triple)] for triple in numbers]
    wrong = {
        (row, *map(hex, triple), hex(got[i][row]), hex(expected[i][row]))
        for i, triple in enumerate(numbers)
        for row in range(len(expected[i]))
        if got[i][row] != expected[i][row]
    }
    assert not wrong, sorted(wrong)[:9]


# -------------------------------------------------------------------------------------------------- floats


def extreme(larger: bool, a: float, b: float, *, nan: bool = False, xorsign: bool = False) -> float:
    if math.isnan(a) or math.isnan(b):
        other = b if math.isnan(a) else a
        if nan or math.isnan(other):
            return math.nan
        picked = other
    else:
        x, y = (abs(a), abs(b)) if xorsign else (a, b)
        ordered = sorted([x, y], key=lambda value: (value, math.copysign(1, value)))
        picked = ordered[larger]
    if not xorsign:
        return picked
    return math.copysign(picked, math.copysign(1, a) * math.copysign(1, b))


def rows_of_floats(a: float, b: float) -> list[float]:
    subnormal = a != 0 and abs(a) < 2.0**-126
    finite, number = math.isfinite(a), not math.isnan(a)
    half_a, half_b = (
        math.nan if math.isnan(value) else float(np.float32(value).astype(np.float16)) for value in (a, b)
    )
    return [
        math.copysign(b, a), math.copysign(b, a),
        finite, math.isinf(a), number, not number, finite and not subnormal, subnormal, finite,
        extreme(False, a, b, xorsign=True), extreme(True, a, b, xorsign=True),
        extreme(False, a, b, nan=True), extreme(True, a, b, nan=True, xorsign=True),
        extreme(False, half_a, half_b, xorsign=True), extreme(True, half_a, half_b, nan=True),
        float(np.float32(a) + np.float32(1.5)), 27.5,
        float(np.float32(a - 2.0)),
    ]  # fmt: skip


@emulated
def test_signs_kinds_and_extremes_of_floats_have_their_definition():
    tiny, least, most = 2.0**-149, 2.0**-126, float(np.finfo(np.float32).max)
    edges = [0.0, 1.0, 1.5, 3.0, tiny, least - tiny, least, most, 65504.0, 0.0009765625, math.inf, math.nan]
    numbers = list(itertools.product([*edges, *(-edge for edge in edges)], repeat=2))
    a, b = (torch.tensor(column).cuda() for column in zip(*numbers, strict=True))
    got = ops().floats(a, b).cpu().T.numpy()
    with np.errstate(all="ignore"):
        expected = np.array([rows_of_floats(*pair) for pair in numbers], dtype=np.float32)
    for row in range(expected.shape[1]):
        same = (got[:, row] == expected[:, row]) & (np.signbit(got[:, row]) == np.signbit(expected[:, row]))
        same |= np.isnan(got[:, row]) & np.isnan(expected[:, row])
        assert same.all(), (row, [(*numbers[i], got[i, row], expected[i, row]) for i in np.flatnonzero(~same)[:5]])


# ------------------------------------------------------------------------------------- the launch, and hints


@emulated
@pytest.mark.parametrize("dynamic_bytes", [4, 1000, 40_000])
def test_special_registers_describe_the_launch(dynamic_bytes):
    first, second = (ops().registers(140, dynamic_bytes).cpu() for _ in range(2))
    multiprocessors = first[:, 0].tolist()
    assert set(multiprocessors) == set(range(132)) and len(set(multiprocessors[:132])) == 132
    static = 17 * 4
    total = (math.ceil(static / 16) * 16 + dynamic_bytes + 127) // 128 * 128
    assert first[:, 1:5].unique(dim=0).tolist() == [[132, 64, dynamic_bytes, total]]
    assert (first[:, 6:9] == 1).all(), "a half of a clock lies between two readings of the whole"
    assert (first[:, 9] == 64).all(), "all threads of a block read the same"
    (grid,), (next_grid,) = first[:, 5].unique().tolist(), second[:, 5].unique().tolist()
    assert grid != next_grid


@emulated
def test_an_address_is_in_one_space():
    is_global, is_shared, is_local = 8, 4 + 2, 1
    got = ops().spaces(torch.zeros(64, dtype=torch.int32, device="cuda")).tolist()
    assert got == [is_global] * 2 + [is_shared] * 3 + [is_local, is_global]


@emulated
@pytest.mark.parametrize("asks_ptx", [True, False], ids=["isspacep", "__isGlobal"])
def test_the_space_of_a_variable_is_unsupported(asks_ptx: bool) -> None:
    ops().space_of_a_variable(torch.zeros(1, dtype=torch.int32, device="cuda"), asks_ptx)
    assert "whether the address of a variable is in constant memory" in reached_lack()


@emulated
def test_hints_for_the_cache_change_nothing_and_a_sink_takes_a_result():
    x, y = torch.arange(64.0), torch.full((64,), -1.0)
    count, written = torch.zeros(1, dtype=torch.int32, device="cuda"), y.cuda()
    ops().hints(x.cuda(), written, count)
    assert count.item() == 5 + 7 + 11
    y[:4] = torch.tensor([0.0, 2.0, 6.0, 3.0])
    assert torch.equal(written.cpu(), y)


@emulated
def test_operands_fit_their_constraints_as_for_nvcc() -> None:
    """The file's assertions hold when it is built. The operand `n` is a constant."""
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    extension("ptx_operands").operands(out)
    assert out.tolist() == [4]
