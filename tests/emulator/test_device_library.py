"""CUDA's device functions under emulation, against NumPy, torch and exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
import torch
from support.emulated_process import emulated, extension, inside  # noqa: F401 - a fixture

HALF, BFLOAT16 = (5, 10), (8, 7)  # bits of exponent and fraction


def library() -> ModuleType:
    return extension("device_library", extra_cuda_cflags=["--expt-extended-lambda"])


def from_bits(bits: int, form: tuple[int, int]) -> float:
    exponent_bits, fraction_bits = form
    bias = 2 ** (exponent_bits - 1) - 1
    sign = -1.0 if bits & 0x8000 else 1.0
    exponent, fraction = (bits & 0x7FFF) >> fraction_bits, bits & (2**fraction_bits - 1)
    if exponent == 2**exponent_bits - 1:
        return math.nan if fraction else sign * math.inf
    if not exponent:
        return sign * fraction * 2.0 ** (1 - bias - fraction_bits)
    return sign * (2**fraction_bits + fraction) * 2.0 ** (exponent - bias - fraction_bits)


def rounded(value: Fraction, form: tuple[int, int], direction: str = "rn") -> int:
    """The bits of an exact number (not zero) in a 16-bit format, rounded in one of CUDA's directions."""
    exponent_bits, fraction_bits = form
    bias = 2 ** (exponent_bits - 1) - 1
    magnitude, sign = abs(value), 0x8000 if value < 0 else 0
    exponent = max(math.floor(math.log2(magnitude)) - 1, 1 - bias)
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    scaled = magnitude / Fraction(2) ** (exponent - fraction_bits)
    low = math.floor(scaled)
    rest = scaled - low
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1),
        "rz": False, "ru": rest > 0 and not sign, "rd": rest > 0 and bool(sign),
    }[direction]  # fmt: skip
    bits = low + up + ((exponent + bias - 1) << fraction_bits)
    infinity = (2**exponent_bits - 1) << fraction_bits
    if bits >= infinity:
        outward = direction == "rn" or (direction == "ru" and not sign) or (direction == "rd" and bool(sign))
        bits = infinity if outward else infinity - 1
    return sign | bits


def bits_of(tensor: torch.Tensor) -> list[int]:
    return [b & 0xFFFF for b in tensor.cpu().tolist()]


def samples(form: tuple[int, int]) -> np.ndarray:
    """Doubles near the hard cases of rounding: ties, their neighbours, subnormals, the ends of the range."""
    random = np.random.default_rng(0)
    exact = np.array([from_bits(b, form) for b in random.integers(0, 0x10000, 400)])
    exact = exact[np.isfinite(exact) & (exact != 0)]
    step = 2.0 ** -(form[1] + 1)
    ties = exact * (1 + step)
    beside = np.concatenate([np.nextafter(ties.astype(np.float32), np.float32(s * np.inf)) for s in (-1, 1)])
    ends = np.array([65504, 65519.99, 65520, 65536, 1e30, 3.39e38, 2.0**-24, 2.0**-25, 2.0**-26, 1e-30, 1e-38])
    both = np.concatenate([exact, ties, beside, ends, -ends])
    return both[np.isfinite(both.astype(np.float32))].astype(np.float32).astype(np.float64)


# ---------------------------------------------------------------------------------------- 16-bit numbers


@emulated
@pytest.mark.parametrize("direction", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize("name", ["half", "bfloat16"])
def test_a_float_is_rounded_to_16_bits_in_every_direction(name, direction):
    form = {"half": HALF, "bfloat16": BFLOAT16}[name]
    values = samples(form)
    got = getattr(library(), f"to_{name}")(torch.from_numpy(values).cuda(), f"float {direction}")
    assert bits_of(got) == [rounded(Fraction(v), form, direction) for v in values.tolist()]


@emulated
@pytest.mark.parametrize("name", ["half", "bfloat16"])
def test_a_double_is_rounded_once_and_not_by_way_of_float(name):
    form = {"half": HALF, "bfloat16": BFLOAT16}[name]
    # Just above a tie: rounded to float first, it would become the tie, and then round down to even.
    half_step = 2.0 ** -(form[1] + 1)
    values = np.array([1 + half_step + 2.0**-40, 1 + half_step, -3.0 - 2 * half_step - 2.0**-45])
    got = getattr(library(), f"to_{name}")(torch.from_numpy(values).cuda(), "double")
    assert bits_of(got) == [rounded(Fraction(v), form) for v in values.tolist()]


@emulated
@pytest.mark.parametrize("special", [math.inf, -math.inf, math.nan, 0.0, -0.0])
def test_what_is_no_number_and_zero_keep_their_kind(special):
    x = torch.tensor([special], dtype=torch.float64).cuda()
    half, bfloat16 = bits_of(library().to_half(x, "float rn"))[0], bits_of(library().to_bfloat16(x, "float rn"))[0]
    for bits, form in [(half, HALF), (bfloat16, BFLOAT16)]:
        value = from_bits(bits, form)
        assert (math.isnan(value) and bits == 0x7FFF) if math.isnan(special) else value == special
        assert math.isnan(special) or math.copysign(1, value) == math.copysign(1, special)


EXACT = {
    "add": lambda a, b, c: a + b, "sub": lambda a, b, c: a - b, "mul": lambda a, b, c: a * b,
    "div": lambda a, b, c: a / b, "fma": lambda a, b, c: a * b + c, "fma2": lambda a, b, c: a * b + c,
    "add2": lambda a, b, c: a + b, "rcp": lambda a, b, c: 1 / a, "floor": lambda a, b, c: Fraction(math.floor(a)),
    "neg": lambda a, b, c: -a, "abs": lambda a, b, c: abs(a), "max": lambda a, b, c: max(a, b),
    "min": lambda a, b, c: min(a, b), "sat": lambda a, b, c: min(max(a + b, Fraction(0)), Fraction(1)),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("name", ["half", "bfloat16"])
def test_arithmetic_in_16_bits_gives_the_exact_result_rounded_once(name):
    form = {"half": HALF, "bfloat16": BFLOAT16}[name]
    random = np.random.default_rng(1)
    bits = random.integers(0, 0x10000, (3, 3000)).astype(np.uint16)
    # Numbers of similar size, whose sums round and cancel, and numbers of every size.
    bits[:, :1500] = (bits[:, :1500] & 0x83FF) | np.uint16(0x3C00 if name == "half" else 0x3F80)
    numbers = [[from_bits(int(b), form) for b in row] for row in bits]
    tensors = [torch.from_numpy(row.view(np.int16).copy()).cuda() for row in bits]
    for op in EXACT:
        got = bits_of(getattr(library(), f"{name}_op")(*tensors, op))
        assert rounded_once(op, form, zip(got, *numbers, strict=True)) > 1000, op


def rounded_once(op: str, form: tuple[int, int], results: Iterable[tuple[int, float, float, float]]) -> int:
    """Checks each result of an operation, as bits and its three operands. The number of those that are not zero."""
    checked = 0
    for ours, a, b, c in results:
        if not all(map(math.isfinite, (a, b, c))) or a == 0 or b == 0:
            continue
        exact = EXACT[op](Fraction(a), Fraction(b), Fraction(c))
        if exact != 0:
            checked += 1
            assert ours == rounded(exact, form), (op, a, b, c)
        else:
            assert ours & 0x7FFF == 0, (op, a, b, c)
    return checked


@emulated
def test_comparisons_know_ordered_from_unordered():
    a, b = (torch.tensor(v, dtype=torch.float16).view(torch.int16).cuda() for v in ([1, 2, math.nan], [2, 1, 1]))
    expected = {"lt": [1, 0, 0], "ltu": [1, 0, 1], "ne": [1, 1, 0], "neu": [1, 1, 1], "isnan": [0, 0, 1]}
    for op, flags in expected.items():
        assert library().half_op(a, b, b, op).tolist() == flags, op
    assert math.isnan(from_bits(bits_of(library().half_op(a, b, b, "max nan"))[2], HALF))
    assert from_bits(bits_of(library().half_op(a, b, b, "max"))[2], HALF) == 1


@emulated
def test_bfloat16_has_operators():
    a, b = torch.randn(100).bfloat16(), torch.randn(100).bfloat16()
    v = -((a + b) * a - b)
    assert torch.equal(library().bfloat16_operators(a.cuda(), b.cuda()).cpu(), torch.where(v > b, v, v / a))


@emulated
def test_torch_s_half_types_and_cuda_s_are_converted_into_each_other():
    x = torch.randn(50).half()
    assert torch.equal(library().through_torch_s_types(x.cuda()).cpu(), x + x + x.bfloat16().half() - x)


# ------------------------------------------------------------------------------------ integers and floats


def u32(x: int) -> int:
    return x & 0xFFFFFFFF


def u64(x: int) -> int:
    return x & 0xFFFFFFFFFFFFFFFF


def i32(x: int) -> int:
    return (x & 0xFFFFFFFF) - ((x & 0x80000000) << 1)


def i64(x: int) -> int:
    return u64(x) - ((x & 2**63) << 1)


def i24(x: int) -> int:
    return (x & 0xFFFFFF) - ((x & 0x800000) << 1)


def byte_perm(a: int, b: int, selector: int) -> int:
    source, out = u32(b) << 32 | u32(a), 0
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = source >> 8 * (nibble & 7) & 0xFF
        out |= ((0xFF if byte & 0x80 else 0) if nibble & 8 else byte) << 8 * i
    return out


def dot(a: int, b: int, signed: bool) -> int:
    parts = [[x >> 8 * i & 0xFF for i in range(4)] for x in (a, b)]
    if signed:
        parts = [[p - 256 if p > 127 else p for p in row] for row in parts]
    return sum(x * y for x, y in zip(*parts, strict=True))


def dpx(function: Callable[..., int], kind: str) -> Callable[[int, int, int], int]:
    """What a function of DPX does with numbers of 32 bits, or with each half of its words, for a kind as `s16x2_relu`.

    `function` gets a function that wraps a number to the type of its kind, and the numbers.
    """
    bits, signed = 32 if "32" in kind else 16, kind.startswith("s")

    def wrapped(x: int) -> int:
        x &= 2**bits - 1
        return x - 2**bits if signed and x >> bits - 1 else x

    def exact(*words: int) -> int:
        out = 0
        for at in range(0, 32, bits):
            value = function(wrapped, *(wrapped(word >> at) for word in words))
            out |= (max(value, 0) if "relu" in kind else value) % 2**bits << at
        return wrapped(out) if bits == 32 else out

    return exact


def choice(of: Callable[..., int], kind: str) -> Callable[[int, int, int], int]:
    """What `__vibmax` and `__vibmin` do: the word, and behind it a bit for each number that says if it is the first."""
    word = dpx(lambda wrapped, a, b, c: of(a, b), kind)
    first = dpx(lambda wrapped, a, b, c: of(a, b) == a, kind)
    if "32" in kind:
        return lambda a, b, c: 2 * word(a, b, c) + first(a, b, c)
    return lambda a, b, c: 4 * word(a, b, c) + (first(a, b, c) >> 16) * 2 + first(a, b, c) % 2


DPX = {
    "__viaddmax": lambda wrapped, a, b, c: max(wrapped(a + b), c),
    "__viaddmin": lambda wrapped, a, b, c: min(wrapped(a + b), c),
    "__vimax3": lambda wrapped, a, b, c: max(a, b, c),
    "__vimin3": lambda wrapped, a, b, c: min(a, b, c),
}
KINDS = ("s32", "u32", "s16x2", "u16x2")
RELU = ("s32_relu", "s16x2_relu")
INTEGERS = {
    **{f"{name}_{kind}": dpx(function, kind) for name, function in DPX.items() for kind in KINDS + RELU},
    **{f"__vimax_{kind}": dpx(lambda wrapped, a, b, c: max(a, b), kind) for kind in RELU},
    **{f"__vimin_{kind}": dpx(lambda wrapped, a, b, c: min(a, b), kind) for kind in RELU},
    **{f"__vib{of.__name__}_{kind}": choice(of, kind) for of in (max, min) for kind in KINDS},
    "popc": lambda a, b, c: u32(a).bit_count(), "popcll": lambda a, b, c: u64(a).bit_count(),
    "clz": lambda a, b, c: 32 - u32(a).bit_length(), "clzll": lambda a, b, c: 64 - u64(a).bit_length(),
    "ffs": lambda a, b, c: (u32(a) & -u32(a)).bit_length(), "ffsll": lambda a, b, c: (u64(a) & -u64(a)).bit_length(),
    "brev": lambda a, b, c: int(f"{u32(a):032b}"[::-1], 2),
    "brevll": lambda a, b, c: i64(int(f"{u64(a):064b}"[::-1], 2)),
    "byte_perm": byte_perm,
    "funnelshift_l": lambda a, b, c: u32(((u32(b) << 32 | u32(a)) << (c & 31)) >> 32),
    "funnelshift_r": lambda a, b, c: u32((u32(b) << 32 | u32(a)) >> (c & 31)),
    "funnelshift_lc": lambda a, b, c: u32(((u32(b) << 32 | u32(a)) << min(c & 63, 32)) >> 32),
    "funnelshift_rc": lambda a, b, c: u32((u32(b) << 32 | u32(a)) >> min(c & 63, 32)),
    "mulhi": lambda a, b, c: i32(i32(a) * i32(b) >> 32), "umulhi": lambda a, b, c: u32(a) * u32(b) >> 32,
    "mul64hi": lambda a, b, c: i64(i64(a) * i64(b) >> 64), "umul64hi": lambda a, b, c: i64(u64(a) * u64(b) >> 64),
    "mul24": lambda a, b, c: i32(i24(a) * i24(b)), "umul24": lambda a, b, c: u32((a & 0xFFFFFF) * (b & 0xFFFFFF)),
    "sad": lambda a, b, c: u32(abs(i32(a) - i32(b)) + c), "usad": lambda a, b, c: u32(abs(u32(a) - u32(b)) + c),
    "hadd": lambda a, b, c: i32(a) + i32(b) >> 1, "rhadd": lambda a, b, c: i32(a) + i32(b) + 1 >> 1,
    "dp4a": lambda a, b, c: i32(dot(a, b, True) + c), "udp4a": lambda a, b, c: u32(dot(a, b, False) + c),
    "min": lambda a, b, c: min(i32(a), i32(b)), "umax": lambda a, b, c: max(u32(a), u32(b)),
    "float_as_int": lambda a, b, c: a & 0x7F7FFFFF, "hiloint": lambda a, b, c: a & 0x7FEFFFFF,
}  # fmt: skip


@emulated
def test_integer_functions_do_what_their_names_say():
    random = np.random.default_rng(2)
    special = np.array([0, 1, -1, 2**31, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 0x80, 0xFF00FF], dtype=np.int64)
    values = [np.concatenate([special, random.integers(-(2**63), 2**63 - 1, 300, dtype=np.int64)]) for _ in range(3)]
    for array in values[1:]:
        random.shuffle(array)
    for op, exact in INTEGERS.items():
        got = library().integers(*(torch.from_numpy(v).cuda() for v in values), op).tolist()
        for ours, a, b, c in zip(got, *(v.tolist() for v in values), strict=True):
            assert ours == exact(a, b, c), (op, hex(a), hex(b), hex(c))


def float_rounded(exact: Fraction, direction: str) -> float:
    nearest = np.float32(float(exact))  # refined below, because the conversion to double may have rounded already
    neighbours = [np.nextafter(nearest, np.float32(end)) for end in (-np.inf, np.inf)]
    candidates = [float(neighbours[0]), float(nearest), float(neighbours[1])]
    below, above = max(c for c in candidates if c <= exact), min(c for c in candidates if c >= exact)
    if below == above or direction == "rd" or (direction == "rz" and exact > 0):
        return below
    if direction == "ru" or direction == "rz":
        return above
    if exact - Fraction(below) == Fraction(above) - exact:
        return below if int(np.float32(below).view(np.int32)) % 2 == 0 else above
    return below if exact - Fraction(below) < Fraction(above) - exact else above


def bessel_i1(x: np.ndarray) -> np.ndarray:
    return torch.special.i1(torch.from_numpy(x).double()).numpy()


EXACT_FLOATS = {
    "fadd_rn": lambda a, b, c: a + b, "fadd_rz": lambda a, b, c: a + b, "fadd_ru": lambda a, b, c: a + b,
    "fmul_rd": lambda a, b, c: a * b, "fmul_ru": lambda a, b, c: a * b, "fmaf_rn": lambda a, b, c: a * b + c,
    "fmaf_rz": lambda a, b, c: a * b + c, "fdiv_rn": lambda a, b, c: a / b, "fdiv_rd": lambda a, b, c: a / b,
}  # fmt: skip


@emulated
@pytest.mark.parametrize("op", list(EXACT_FLOATS))
def test_float_arithmetic_is_rounded_in_the_direction_of_its_name(op):
    random = np.random.default_rng(3)
    values = [(random.standard_normal(500) * 2.0 ** random.integers(-20, 20, 500)).astype(np.float32) for _ in range(3)]
    got = library().floats(*(torch.from_numpy(v).cuda() for v in values), op).tolist()
    for ours, a, b, c in zip(got, *(v.tolist() for v in values), strict=True):
        assert ours == float_rounded(EXACT_FLOATS[op](Fraction(a), Fraction(b), Fraction(c)), op[-2:]), (a, b, c)


FLOATS = {
    "float2int_rn": lambda x, y: np.rint(x), "float2int_rz": lambda x, y: np.trunc(x),
    "float2int_rd": lambda x, y: np.floor(x), "float2uint_ru": lambda x, y: np.maximum(np.ceil(x), 0),
    "saturate": lambda x, y: np.clip(x, 0, 1), "expf": lambda x, y: np.exp(x), "logf": lambda x, y: np.log(abs(x)),
    "fdividef": lambda x, y: x / y, "rsqrtf": lambda x, y: 1 / np.sqrt(abs(x)),
    "powf": lambda x, y: abs(x) ** y, "max": np.maximum, "pi": lambda x, y: np.full_like(x, np.pi),
    "fsqrt_ru": lambda x, y: np.sqrt(abs(x)), "cyl_bessel_i0f": lambda x, y: np.i0(x),
    "cyl_bessel_i0": lambda x, y: np.i0(x), "cyl_bessel_i1f": lambda x, y: bessel_i1(x),
    "cyl_bessel_i1": lambda x, y: bessel_i1(x),
}  # fmt: skip


@emulated
@pytest.mark.parametrize(("op", "form"), [("half_constant", HALF), ("bfloat16_constant", BFLOAT16)])
def test_constants_of_16_bits_have_the_values_of_their_names(op, form):
    i = torch.zeros(7).cuda()
    zero, negative_zero, one, smallest, largest, infinity, nan = library().floats(i, i, i, op).tolist()
    top = rounded(Fraction(2**200), form)
    assert (zero, one, infinity) == (0, 1, math.inf) and math.isnan(nan)
    assert negative_zero == 0 and math.copysign(1, negative_zero) == -1
    assert (smallest, largest) == (from_bits(1, form), from_bits(top - 1, form))


@emulated
def test_a_kernel_tells_the_memory_of_an_address():
    shared, local, of_the_gpu, constant = library().spaces().tolist()
    assert (shared, local, of_the_gpu, constant) == ([1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0])


@emulated
def test_bessel_functions_keep_their_sign_and_end_at_infinity():
    x = torch.tensor([0.0, -2.0, 1e5, -1e5, math.inf, math.nan]).cuda()
    for op, at_zero, at_two, odd in (("cyl_bessel_i0", 1, 2.2795853, 1), ("cyl_bessel_i1", 0, 1.5906369, -1)):
        for name in (op, op + "f"):
            got = library().floats(x, x, x, name).tolist()
            assert got[:5] == pytest.approx([at_zero, odd * at_two, math.inf, odd * math.inf, math.inf])
            assert math.isnan(got[5])


@emulated
def test_float_functions_do_what_their_names_say():
    x, y = (np.random.default_rng(s).standard_normal(200).astype(np.float32) * 5 for s in (4, 5))
    for op, exact in FLOATS.items():
        got = library().floats(*(torch.from_numpy(v).cuda() for v in (x, y, y)), op).cpu().numpy()
        np.testing.assert_allclose(got, exact(x, y), rtol=2e-6, err_msg=op)


def approximate(x: np.ndarray, op: str) -> np.ndarray:
    """The results of a device function that approximates sine, cosine, tangent or tanh, for a float32 array."""
    y = torch.from_numpy(x).cuda()
    return library().floats(y, y, y, op).cpu().numpy().astype(np.float64)


@emulated
@pytest.mark.parametrize("op", ["sinf", "cosf", "sin.approx", "cos.approx"])
def test_the_error_of_a_fast_sine_or_cosine_is_small_in_one_turn_and_grows_with_the_angle(op):
    exact = np.sin if "sin" in op else np.cos
    # The CUDA programming guide, "Intrinsic Functions": 2^-21 in [-pi, pi], and larger elsewhere.
    turn = np.random.default_rng(1).uniform(-np.pi, np.pi, 10_000).astype(np.float32)
    assert abs(approximate(turn, op) - exact(turn.astype(np.float64))).max() < 2**-21
    far = turn * 10_000
    assert 2**-11 < abs(approximate(far, op) - exact(far.astype(np.float64))).max() < 0.02


@emulated
def test_other_fast_functions_of_angles_use_the_fast_sine_and_cosine():
    x = np.random.default_rng(2).uniform(-1, 1, 1000).astype(np.float32) * 10_000
    ratio = approximate(x, "sinf") / approximate(x, "cosf")
    for op in ("tanf", "sincosf"):
        np.testing.assert_allclose(approximate(x, op), ratio, rtol=1e-6)


@emulated
@pytest.mark.parametrize("op", ["tanhf", "tanh.approx"])
def test_a_fast_tanh_has_11_bits(op):
    x = np.random.default_rng(3).standard_normal(1000).astype(np.float32)
    error = abs(approximate(x, op) / np.tanh(x.astype(np.float64)) - 1).max()
    assert 2**-12 < error < 2**-11 * 1.001
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype=np.float32)
    np.testing.assert_array_equal(approximate(special, op), np.tanh(special))


@emulated
def test_four_numbers_are_read_and_written_at_once():
    x, c = torch.arange(20.0), torch.arange(20, dtype=torch.uint8)
    reversed_x, reversed_c = library().reverse_fours(x.cuda(), c.cuda())
    assert torch.equal(reversed_x.cpu().reshape(-1, 4), x.reshape(-1, 4).flip(1))
    assert torch.equal(reversed_c.cpu().reshape(-1, 4), c.reshape(-1, 4).flip(1))


# ------------------------------------------------------------------------------------------------- atomics


@emulated
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_atomics_of_every_type_lose_nothing(dtype):
    kind = getattr(torch, dtype)
    x = torch.randint(1, 1000, (150,)).to(kind)
    start = torch.tensor([0, 0, 2000, 0, -1 if not kind.is_floating_point else 0, 0, 0, 0]).to(kind)
    got = library().atomics_of(x.cuda(), start.cuda()).tolist()
    expected = [x.sum().item()] * 2
    if not kind.is_floating_point:
        numbers = x.tolist()
        bits_and, bits_or, bits_xor = -1, 0, 0
        for number in numbers:
            bits_and, bits_or, bits_xor = bits_and & number, bits_or | number, bits_xor ^ number
        expected += [min(numbers), max(numbers), bits_and, bits_or, bits_xor, sum(numbers)]
    assert got[: len(expected)] == expected


@emulated
def test_small_types_and_wrapping_counters_are_atomic_too():
    half, half2, bfloat16, counters, four = (t.tolist() for t in library().small_atomics())
    assert half == [128] and half2 == [128, 256] and bfloat16 == [128]
    assert counters == [128 % 11, (0 - 128) % 11, 7, -128]
    assert four == [128, 256, 384, 512]


@emulated
@pytest.mark.parametrize(("blocks", "threads"), [(1, 2), (4, 100)])
def test_a_lock_is_passed_on_among_the_threads_of_a_warp(blocks, threads):
    assert library().locked_count(blocks, threads).item() == blocks * threads


# --------------------------------------------------------------------------------------- warps and groups


@emulated
def test_lanes_match_reduce_and_know_who_runs_with_them():
    x = torch.randint(-3, 4, (32,), dtype=torch.int32)
    numbers = x.tolist()
    rows = library().warp_operations(x.cuda()).cpu().tolist()
    assert rows[0] == [i32(sum((other == mine) << i for i, other in enumerate(numbers))) for mine in numbers]
    assert rows[1] == [0] * 32
    assert rows[2] == [sum(numbers)] * 32 and rows[3] == [min(numbers)] * 32
    assert rows[4] == [i32(max(map(u32, numbers)))] * 32
    assert rows[5][0] == i32(int(np.bitwise_xor.reduce(np.array(numbers, dtype=np.int32))))
    assert rows[6] == [numbers[i ^ 1] for i in range(32)]
    together = [sum(1 << i for i in range(32) if (i % 3 == 0) == third) for third in (False, True)]
    # A GPU may split lanes that run together, and never joins lanes that do not.
    assert all(u32(mask) & ~together[i % 3 == 0] == 0 and u32(mask) >> i & 1 for i, mask in enumerate(rows[7]))


@emulated
def test_lanes_that_call_one_function_from_two_branches_are_apart():
    masks, here, there = library().diverged_calls().cpu().tolist()
    assert {u32(mask) for mask in masks[::3]} == {sum(1 << i for i in range(0, 32, 3))}
    assert {u32(mask) for i, mask in enumerate(masks) if i % 3} == {sum(1 << i for i in range(32) if i % 3)}
    assert here == [5] * 5 + [0] * 27 and there == [0] * 5 + [27] * 27


@emulated
@pytest.mark.parametrize("threads", [32, 96])
def test_cooperative_groups_number_reduce_scan_and_shuffle(threads):
    x = torch.randint(-99, 100, (threads,), dtype=torch.int32)
    out = library().group_operations(x.cuda()).cpu().long()
    tiles, rank = x.reshape(-1, 8).long(), torch.arange(threads)
    each = tiles.repeat_interleave(8, 0)
    assert torch.equal(out[0], rank % 8) and torch.equal(out[1], rank // 8)
    assert torch.equal(out[2], each.sum(1)) and torch.equal(out[3], each.min(1).values)
    assert torch.equal(out[4], tiles.cumsum(1).reshape(-1))
    assert torch.equal(out[5], (tiles.cumsum(1) - tiles).reshape(-1))
    assert torch.equal(out[6], each[:, 3])
    assert torch.equal(out[7], torch.where(rank % 8 < 6, x.roll(-2).long(), x.long()))
    assert torch.equal(out[8], ((each > 0) * 2 ** torch.arange(8)).sum(1))
    assert torch.equal(out[9], (each > 90).any(1) * 2 + (each > -90).all(1).long())
    positive = x.reshape(-1, 32).long().clamp(min=0)
    summary = (positive.sum(1) * 64 + (positive > 0).sum(1)).repeat_interleave(32)
    assert torch.equal(out[10], torch.where(x > 0, summary, torch.tensor(-1)))
    assert torch.equal(out[11], rank % 16 * 64 + 16)
    assert torch.equal(out[12], x[rank ^ 3].long())


@emulated
def test_cub_reduces_and_scans_blocks_and_warps():
    x = torch.randint(-99, 100, (64,), dtype=torch.int32)
    out, wide = library().cub_operations(x.cuda()).cpu().long(), x.long()
    assert [out[row, 0].item() for row in (0, 1, 2, 8)] == [wide.sum(), wide.max(), wide[:40].sum(), wide.sum()]
    assert torch.equal(out[3], wide.cumsum(0)) and torch.equal(out[4], wide.cumsum(0) - wide)
    assert torch.equal(out[5], wide.cummax(0).values)
    assert out[6, ::32].tolist() == wide.reshape(2, 32).sum(1).tolist()
    assert torch.equal(out[7].reshape(2, 32), wide.reshape(2, 32).cumsum(1) - wide.reshape(2, 32))


# ------------------------------------------------------------------------------------------- inline PTX


@emulated
def test_instructions_of_inline_ptx_on_one_thread_have_their_meaning():
    x, n = torch.randn(32), torch.randint(-(2**31), 2**31 - 1, (32,), dtype=torch.int32)
    out, total, total_float = (each.cpu() for each in library().ptx_values(x.cuda(), n.cuda()))
    got, y = out.T, x.roll(-1)
    u, v, w = (n.roll(-i).long() & 0xFFFFFFFF for i in range(3))

    def signed(bits: torch.Tensor) -> list[int]:
        return (((bits & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000).tolist()

    def halves(dtype: torch.dtype) -> list[int]:  # the first operand is the upper half
        low, high = (each.to(dtype).view(torch.int16).long() & 0xFFFF for each in (y, x))
        return signed(low | high << 16)

    lane = torch.arange(32)
    assert got[0].tolist() == signed((u & v) | (~u & w))
    assert got[1].tolist() == signed((u & 0xFFFF) | (v & 0xFFFF) << 16)
    assert got[2].tolist() == ((x.view(torch.int32) + 0x1000) & ~0x1FFF).tolist()
    assert got[3].tolist() == halves(torch.float16)
    assert got[4].tolist() == halves(torch.bfloat16)
    assert torch.equal(got[5].view(torch.float32), (x.double() * y.double() + 1.5).float())
    assert got[6].tolist() == lane.tolist()
    assert got[7].tolist() == torch.where(n > 0, 8, 10).tolist()
    assert got[8].tolist() == signed(torch.where(lane + 8 < 32, u << (lane + 8).clamp(max=31), 0))
    assert got[9].tolist() == torch.where(n < 0, -1, 0).tolist()
    product = [int(a) * int(b) for a, b in zip(u, v, strict=True)]
    assert got[10].tolist() == signed(torch.tensor([p & 0xFFFFFFFF for p in product]))
    assert got[11].tolist() == signed(torch.tensor([p >> 32 for p in product]))
    assert got[12].tolist() == (x * 10).round().int().tolist()
    torch.testing.assert_close(got[13].view(torch.float32), x.exp2())
    assert got[14].view(torch.float32).tolist() == [x[7].item()] * 32
    assert got[15].all() and (total.item(), total_float.item()) == (31 * 32 // 2, 32)


@emulated
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tensor_cores_multiply_what_ldmatrix_loads_from_tiles_that_cp_async_copied(dtype):
    a, b = (torch.randint(-4, 5, (rows, 16)).to(getattr(torch, dtype)) for rows in (16, 8))
    assert torch.equal(library().ptx_product(a.cuda(), b.cuda()).cpu(), a.float() @ b.float().T + 1)


@emulated
def test_tensor_cores_multiply_tf32_and_int8():
    a, b = (torch.randint(-9, 10, (rows, 8)).float() for rows in (16, 8))
    assert torch.equal(library().ptx_product_of_registers(a.cuda(), b.cuda()).cpu(), a @ b.T)
    a, b = (torch.randint(-128, 128, (rows, 32), dtype=torch.int8) for rows in (16, 8))
    assert torch.equal(library().ptx_product_of_registers(a.cuda(), b.cuda()).cpu(), a.int() @ b.int().T)


@emulated
def test_containers_of_cuda_s_standard_library_work_in_kernels():
    assert library().sum_of_span(torch.arange(10.0).cuda()).item() == 45
