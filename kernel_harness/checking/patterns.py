"""Explains a wrong output: where the wrong elements are, what they contain, and which mistake is a likely cause.

A recogniser is a function that returns a text if the wrong output has a certain pattern, and None otherwise. There are
three lists of recognisers: for right values in the wrong places, for the contents and for the places of the wrong
elements. In each list, the first recogniser that matches gives the text. The module `verify` decides which elements are
wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch

from kernel_harness.checking.wrong_elements import Wrong
from kernel_harness.core.precision import is_inexact

MIN_WRONG = 4
"""The least number of wrong elements that can form a pattern. Fewer elements would form one by chance."""
MIN_LAST = 64
"""The least number of elements of an output whose last element alone is a pattern. Any other element is as likely."""
MOST_OF_ALL = 0.9
"""The largest share of an output that a frame, a block or a run may take. A larger one shows nothing."""
MOST_DESCRIBED = 1 << 26
"""The largest number of elements of an output that is searched for a pattern. The search takes ten times its memory."""


@dataclass(frozen=True)
class Pattern:
    """A text about the wrong elements or the mistake that causes them, and advice on where to look in the kernel.

    Both texts are empty if the wrong elements form no known pattern.
    """

    text: str = ""
    advice: str = ""

    @staticmethod
    def of_answer(how: str, advice: str) -> Pattern:
        """Returns the Pattern of an output that is the reference's answer, with the change that `how` names."""
        return Pattern(f"The output is the reference's answer {how}.", advice)


def describe(wrong: Wrong) -> Pattern:
    """Returns the Pattern that the wrong elements form: a sentence that describes it, and advice.

    If the right values are in the wrong places, the sentence says only that. Otherwise it says what the wrong elements
    contain and where they are, as far as a recogniser matches. Both texts are empty if no recogniser matches, or if the
    output has more than MOST_DESCRIBED elements.
    """
    if wrong.mask.numel() > MOST_DESCRIBED:
        return Pattern()
    whole = _first(_ARRANGEMENTS, wrong)
    found = [whole] if whole else [_first(recognisers, wrong) for recognisers in (_CONTENTS, _PLACES)]
    known = [pattern for pattern in found if pattern is not None]
    text = "; ".join(pattern.text for pattern in known)
    # The advice is that of the last pattern: the place of the wrong elements leads closer to the faulty line of the
    # kernel than their content.
    advice = known[-1].advice if known else ""
    return Pattern(f"{text[0].upper()}{text[1:]}{'' if text.endswith('?') else '.'}" if text else "", advice)


def rearranged(wrong: Wrong) -> bool:
    """Returns whether a recogniser finds the right values in the wrong places.

    Returns False if the output has more than MOST_DESCRIBED elements.
    """
    return wrong.mask.numel() <= MOST_DESCRIBED and _first(_ARRANGEMENTS, wrong) is not None


Recogniser = Callable[[Wrong], str | None]
Recognisers = Mapping[Recogniser, str]  # each recogniser with its advice, in the order in which they are tried


def _first(recognisers: Recognisers, wrong: Wrong) -> Pattern | None:
    texts = ((recogniser(wrong), advice) for recogniser, advice in recognisers.items())
    return next((Pattern(text, advice) for text, advice in texts if text is not None), None)


# Recognisers of what the wrong elements contain.


def _nan(wrong: Wrong) -> str | None:
    kind = "NaN" if wrong.values.isnan().all() else "infinite" if wrong.values.isinf().all() else None
    if kind is None:
        return None
    return f"every wrong element is {kind}: memory that was never written, a division by zero, or an overflow"


def _zeros(wrong: Wrong) -> str | None:
    if wrong.count < MIN_WRONG or wrong.values.count_nonzero():
        return None
    if wrong.got.count_nonzero():
        return "every wrong element is 0"
    return "the whole output is zero: did the kernel run, and did it write to the output?"


def _constant(wrong: Wrong) -> str | None:
    if wrong.count < MIN_WRONG or not _all_equal(wrong.values) or _all_equal(wrong.wanted):
        return None
    return f"every wrong element holds the same value, {wrong.values[0].item():.7g}"


def _scaled(wrong: Wrong) -> str | None:
    if wrong.count < MIN_WRONG or not wrong.wanted.is_floating_point() or bool((wrong.wanted == 0).any()):
        return None
    ratios = wrong.values.double() / wrong.wanted.double()
    centre = float(ratios.median())
    spread = float((ratios - centre).abs().max())
    if not 0 < abs(centre) < float("inf") or abs(centre - 1) < 0.01 or not spread <= 1e-3 * abs(centre):
        return None
    if abs(centre + 1) < 1e-3:
        return "every wrong element has the opposite sign"
    return f"every wrong element is {centre:.4g} times what it should be"


def _offset(wrong: Wrong) -> str | None:
    if wrong.count < MIN_WRONG or not wrong.wanted.is_floating_point() or _all_equal(wrong.wanted):
        return None
    differences = wrong.values.double() - wrong.wanted.double()
    centre = float(differences.median())
    spread, least = float((differences - centre).abs().max()), 1e-3 * float(wrong.wanted.abs().max())
    if not abs(centre) > least or not spread <= 1e-3 * abs(centre):
        return None
    return f"every wrong element is too {'large' if centre > 0 else 'small'} by {abs(centre):.4g}"


_CONTENTS: Recognisers = {
    _nan: "check that every element of the output and of shared memory is written before it is read, tails included",
    _zeros: "check that the launch covers the output (grid x block, rounded up) and that the kernel writes its result",
    _constant: "check the index that the kernel writes to, and that it stores its result, not an accumulator's start",
    _offset: "look for a term that is added once too often or left out, such as a constant, eps or a bias",
    _scaled: "look for a loop that runs too often or too rarely, a term that is added twice, or a factor too many",
}


# Recognisers of right values in the wrong places. If one of them matches, the other two lists are not tried.


def _transposed(wrong: Wrong) -> str | None:
    expected = wrong.expected
    if expected.ndim < 2 or min(expected.shape[-2:]) < 2 or wrong.count < MIN_WRONG:
        return None
    if not _agree(wrong, wrong.got, expected.mT.reshape(expected.shape)):
        return None
    return "the right values are transposed in memory"


def _shifted(wrong: Wrong) -> str | None:
    for axis in reversed(range(wrong.got.ndim)):
        overlap = wrong.got.shape[axis] - 1
        if overlap < 1:
            continue
        for word, got, expected in (("higher", 1, 0), ("lower", 0, 1)):
            shifted = wrong.got.narrow(axis, got, overlap), wrong.expected.narrow(axis, expected, overlap)
            off = int(wrong.mask.narrow(axis, got, overlap).sum())
            if off >= max(MIN_WRONG, shifted[0].numel() // 2) and _agree(wrong, *shifted):
                return f"the right values are shifted by one {_unit(wrong, axis)}, to {word} indices"
    return None


def _repeated(wrong: Wrong) -> str | None:
    if wrong.got.ndim < 2 or wrong.count < wrong.mask.numel() // 2 or _all_equal(wrong.got):
        return None
    for axis in (wrong.got.ndim - 2, wrong.got.ndim - 1):
        if wrong.got.shape[axis] < 3 or wrong.got.numel() // wrong.got.shape[axis] < 2:
            continue
        first = wrong.got.narrow(axis, 0, 1)
        if bool((wrong.got == first).all()):
            return f"every {_unit(wrong, axis)} is the same"
    return None


def _of_another_type(wrong: Wrong) -> str | None:
    """Recognises right values that were stored as numbers of another type, such as int32 in an output of int64."""
    if wrong.count < MIN_WRONG or wrong.got.dtype not in _STORED or _all_equal(wrong.expected):
        return None
    stored = wrong.got.reshape(-1).contiguous().view(torch.uint8)
    for dtype in _STORED:
        count = min(stored.numel() // dtype.itemsize, wrong.expected.numel())
        other_kind = dtype.is_floating_point is not wrong.got.is_floating_point()
        if dtype is wrong.got.dtype or other_kind or count < MIN_WRONG:
            continue
        values, wanted = stored[: count * dtype.itemsize].view(dtype), wrong.expected.reshape(-1)[:count]
        error = 4 * torch.finfo(dtype).eps * float(wanted.abs().max()) if dtype.is_floating_point else 0.0
        if not _all_equal(wanted) and bool(((values.double() - wanted.double()).abs() <= error).all()):
            return f"the right values are stored as {dtype} in an output of {wrong.got.dtype}"
    return None


_STORED = (
    torch.int64, torch.int32, torch.int16, torch.uint8, torch.float64, torch.float32, torch.float16, torch.bfloat16
)  # fmt: skip
_ARRANGEMENTS: Recognisers = {
    _transposed: "swap the row and the column where the output is written: C[row * columns + column]",
    _shifted: "look for an index that is off by one: a loop bound, or a + 1 in the address of the store",
    _repeated: "an index is missing in the address of the load or of the store",
    _of_another_type: "make the kernel's pointer to the output one to the type that the output has",
}


# Recognisers of where the wrong elements are.


def _lines(wrong: Wrong, which: str = "") -> str | None:
    """Recognises that rows or columns, or slices along any axis, are wrong (`_filled`) and all others are right.

    A wrong row may have a few right elements. An example of the returned text: `the wrong elements fill row 3 of 48`.
    If the part that names the rows does not begin with `which`, such as `the last of`, returns None.
    """
    for axis, size in enumerate(wrong.mask.shape):
        if wrong.mask.numel() < MIN_WRONG * size:
            continue
        hit = wrong.mask.movedim(axis, 0).reshape(size, -1).any(dim=1).nonzero()[:, 0]
        lines = wrong.explained.movedim(axis, 0).reshape(size, -1)[hit]
        if len(hit) == size or not _filled(wrong, lines) or float(lines.double().mean(dim=1).min()) < 0.5:
            continue
        text = _span(hit.tolist(), size, _unit(wrong, axis))
        if text is not None:
            text = f"the wrong elements fill {text}{'' if wrong.mask.ndim == 2 else f' along dimension {axis}'}"
            return text if text.startswith(f"the wrong elements fill {which}") else None
    return None


def _all_but_first(wrong: Wrong) -> str | None:
    """Recognises that all rows or columns are wrong but the first, whose index is 0."""
    text = _lines(wrong, which="the last ") or ""
    return text if any(f"the last {size - 1} of {size} " in text for size in wrong.mask.shape) else None


def _last_element(wrong: Wrong) -> str | None:
    if wrong.count == 1 and wrong.mask.numel() >= MIN_LAST and bool(wrong.mask.reshape(-1)[-1]):
        return "only the last element is wrong"
    return None


def _tail_frame(wrong: Wrong) -> str | None:
    """Recognises that the last rows and the last columns of each matrix are wrong and all other elements are right."""
    if wrong.mask.ndim < 2:
        return None
    flat = wrong.mask.reshape(-1, *wrong.mask.shape[-2:]).any(dim=0)
    rows, columns = flat.shape
    # The wrong rows are found in the first column, the wrong columns in the first row.
    row, column = _first_of_tail(flat[:, 0]), _first_of_tail(flat[0])
    if not (0 < row < rows and 0 < column < columns) or bool(flat[:row, :column].any()):
        return None
    frame = torch.cat((wrong.explained[..., row:, :].reshape(-1), wrong.explained[..., :row, column:].reshape(-1)))
    if not _filled(wrong, frame) or frame.numel() > MOST_OF_ALL * wrong.mask.numel():
        return None
    return f"the wrong elements fill the last tiles, rows from {row} and columns from {column} on"


def _first_of_tail(line: torch.Tensor) -> int:
    """Returns the index from which on all elements of `line` are True; its length if the last element is False."""
    right = (~line).nonzero()[:, 0]
    return int(right[-1]) + 1 if len(right) else 0


def _block(wrong: Wrong) -> str | None:
    """Recognises that one contiguous rectangle is wrong."""
    if wrong.mask.ndim < 2:
        return None
    region, words = wrong.explained, list[str]()
    for axis, size in enumerate(wrong.mask.shape):
        hit = wrong.mask.movedim(axis, 0).reshape(size, -1).any(dim=1).nonzero()[:, 0]
        first, last = int(hit[0]), int(hit[-1])
        region = region.narrow(axis, first, last - first + 1)
        unit = _unit(wrong, axis) + ("s" if wrong.mask.ndim == 2 else f"s of dimension {axis}")
        words.append(f"{unit} {first} to {last}")
    if region.numel() > MOST_OF_ALL * wrong.mask.numel() or not _filled(wrong, region):
        return None
    return f"the wrong elements fill one block, {', '.join(words)}"


def _run(wrong: Wrong) -> str | None:
    """Recognises that one contiguous run of elements in memory order is wrong."""
    flat = wrong.mask.reshape(-1)
    first = int(flat.to(torch.uint8).argmax())
    last = flat.numel() - 1 - int(flat.flip(0).to(torch.uint8).argmax())
    run = wrong.explained.reshape(-1)[first : last + 1]
    if run.numel() > MOST_OF_ALL * flat.numel() or not _filled(wrong, run):
        return None
    if last == flat.numel() - 1:
        return f"all elements from {first} on, in memory order, are wrong{_tile_hint(first)}"
    return f"the wrong elements are one run in memory order, from {first} to {last}"


def _stride(wrong: Wrong) -> str | None:
    """Recognises that every n-th element in memory order is wrong."""
    if not 2 * MIN_WRONG <= wrong.count <= wrong.mask.numel() // 2 + 1:
        return None
    flat = wrong.mask.reshape(-1).nonzero()[:, 0]
    step = int((flat[1:] - flat[:-1]).min())
    every = wrong.explained.reshape(-1)[int(flat[0]) :: step]
    whole = int(flat[0]) < step and int(flat[-1]) + step >= wrong.mask.numel()
    if step < 2 or not whole or bool(((flat - flat[0]) % step).any()) or not _filled(wrong, every):
        return None
    return f"{_every(step)} element in memory order is wrong, from {int(flat[0])} on"


_TAIL = (
    "round the grid up, (size + tile - 1) / tile, and guard loads and stores of the last, partial tile: a thread "
    "outside of it must not end the work of its whole tile or block"
)
_ONE_TOO_SMALL = (
    "look for a bound that is one too small in a guard or a loop, such as i < n - 1 for i < n; or round the grid up, "
    "(size + tile - 1) / tile"
)
_PLACES: Recognisers = {
    _last_element: _ONE_TOO_SMALL,
    partial(_lines, which="the last of "): _ONE_TOO_SMALL,
    _all_but_first: "check the number that this index is multiplied by in each address: index 0 is right with any",
    partial(_lines, which="the last "): _TAIL,
    _lines: "check how a thread's index becomes a row or a column, and what these rows or columns have in common",
    _tail_frame: _TAIL,
    _run: f"{_TAIL}; or launch more threads, because there are fewer threads than output elements",
    _block: "check the block or tile that writes there: its offset, and the barriers around its shared memory",
    _stride: "check the vectorised or unrolled code: one element of each group is not written, or is written elsewhere",
}


def _filled(wrong: Wrong, explained: torch.Tensor) -> bool:
    """Returns whether a region of the output counts as wrong as a whole.

    `explained` is the part of `Wrong.explained` in that region: True at elements that are wrong, or zero as expected.
    At least 95% of it must be True. The output must have at least MIN_WRONG wrong elements, and at least a fifth as
    many as the region has elements.
    """
    if wrong.count < MIN_WRONG or wrong.count < 0.2 * explained.numel():
        return False
    return int(explained.sum()) >= 0.95 * int(explained.numel())


def _all_equal(tensor: torch.Tensor) -> bool:
    return bool((tensor == tensor.reshape(-1)[0]).all())


def _agree(wrong: Wrong, left: torch.Tensor, right: torch.Tensor) -> bool:
    if not is_inexact(left.dtype):
        return bool(torch.equal(left, right))
    finite = wrong.expected[wrong.expected.isfinite()]
    limit = 1e-3 * float(finite.abs().max()) if finite.numel() else 0.0
    return bool(torch.isclose(left, right, rtol=1e-3, atol=1e-2 * limit, equal_nan=True).all())


def _unit(wrong: Wrong, axis: int) -> str:
    if wrong.mask.ndim == 1:
        return "element"
    if wrong.mask.ndim == 2:
        return ("row", "column")[axis]
    return "slice"


def _span(hit: list[int], size: int, unit: str) -> str | None:
    """Returns a text that names the rows (or columns, elements, slices) with the sorted indices `hit`.

    `size` is the number of all rows of the output, and `unit` is the word for one of them, such as "row". Returns None
    for more than five rows, unless they are contiguous or every n-th row from the start to the end of the output.
    """
    first, last, steps = hit[0], hit[-1], {b - a for a, b in pairwise(hit)}
    if len(hit) == 1:
        return f"the last of {size} {unit}s{_tile_hint(first)}" if first == size - 1 else f"{unit} {first} of {size}"
    if steps == {1}:
        if last == size - 1:
            return f"the last {len(hit)} of {size} {unit}s, from {first} on{_tile_hint(first)}"
        return f"{unit}s {first} to {last} of {size}"
    step = max(steps)
    if len(steps) == 1 and len(hit) > 2 and first < step and last + step >= size:
        return f"{_every(step)} {unit}, from {first} on"
    return f"{unit}s {', '.join(map(str, hit))} of {size}" if len(hit) <= 5 else None


def _tile_hint(start: int) -> str:
    """Returns a note on the kernel's likely tile size if `start` is a multiple of 4; otherwise an empty string.

    `start` is the index of the first wrong element, row or column. All later ones, up to the end, are wrong too.
    """
    tile = min(start & -start, 256)
    return f": the tail after whole tiles of {tile}" if tile >= 4 else ""


def _every(step: int) -> str:
    return {2: "every 2nd", 3: "every 3rd"}.get(step, f"every {step}th")
