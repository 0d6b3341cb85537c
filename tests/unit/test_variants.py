"""Variants of a kernel: which definitions get another value, their names, and which variant is the fastest."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pages import EMULATION, SHAPE, result, timed

from kernel_harness.core.errors import NotFound
from kernel_harness.core.status import Status
from kernel_harness.problem import variants
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results import fastest
from kernel_harness.results.record import Result
from kernel_harness.timing.intervals import Interval


def kernel(source: str) -> Candidate:
    return Candidate("k", Path("k.py"), source)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("#define TILE 16", "#define TILE 32"),
        ("#ifndef TILE\n # define TILE (16)  // a\n#endif", "#ifndef TILE\n # define TILE 32  // a\n#endif"),
        ("constexpr int TILE = 16;", "constexpr int TILE = 32;"),
        ("static const unsigned BIG = 1, TILE=16u, X = TILE;", "static const unsigned BIG = 1, TILE=32, X = TILE;"),
        ("    int TILE = 16;", "    int TILE = 32;"),
        ("template <int X, int TILE = 16>", "template <int X, int TILE = 32>"),
        ("TILE = 16  # square\nOTHER = TILE", "TILE = 32  # square\nOTHER = TILE"),
        ("TILE: int = 16", "TILE: int = 32"),
        ('text = "#define TILE 16\\n#define B 2"', 'text = "#define TILE 32\\n#define B 2"'),
        ('extra_cuda_cflags=["-DTILE=16"]', 'extra_cuda_cflags=["-DTILE=32"]'),
        ("#define TILE 16\nTILE = 16", "#define TILE 32\nTILE = 32"),
    ],
)
def test_a_definition_gets_the_value(before: str, after: str) -> None:
    (one,) = variants.of([kernel(before)], [("TILE", ["32"])])
    assert (one.name, one.source) == ("k[TILE=32]", after)


@pytest.mark.parametrize(
    "source",
    [
        "#define TILES 16", "#define TILE(x) 16", "#define TILE 2 * 16", "constexpr int TILE = 32 - 1;",
        "int x = TILE == 16;", "    TILE = 16", "x[TILE] = 16", "f(TILE=16)", "constexpr int MY_TILE = 16;", "",
    ],
)  # fmt: skip
def test_what_is_no_definition_by_one_value_is_left_and_told(source: str) -> None:
    with pytest.raises(NotFound, match=r"does not define TILE as one number or name\. Write `#define TILE 16`"):
        variants.of([kernel(source)], [("TILE", ["32"])])


def test_all_combinations_have_names_that_can_be_read_back() -> None:
    plain = kernel("#define A 1\n#define B 2")
    found = variants.of([plain], [("A", ["1", "half"]), ("B", ["3"]), ("A", ["-2.5", "1"])])
    assert [each.name for each in found] == ["k[A=1,B=3]", "k[A=half,B=3]", "k[A=-2.5,B=3]"]
    assert len({each.sha256 for each in [plain, *found]}) == 4
    assert [variants.named(each.name, {"k": plain}) for each in found] == found
    assert variants.of([plain], []) == [plain] and variants.named("k", {"k": plain}) == plain
    assert variants.named("k[C=1]", {"k": plain}) is None and variants.parts("k[1]") == ("k[1]", ())


def with_speedup(name: str, low: float | None, estimate: float, high: float | None, **more: object) -> Result:
    one = timed(name, 1.0, **more)
    assert one.timing
    object.__setattr__(one.timing, "speedup", Interval(low, estimate, high))
    return one


def test_the_fastest_variant_is_compared_with_the_second() -> None:
    results = [
        timed("torch", 1.0), timed("tiled", 0.1), with_speedup("tiled[T=1]", 0.99, 1.0, 1.01),
        with_speedup("tiled[T=2]", 1.99, 2.0, 2.01), with_speedup("tiled[T=3]", 1.49, 1.6, 1.61),
        result("tiled[T=4]", Status.WRONG_VALUES), with_speedup("naive[T=1]", 0.1, 0.2, 0.3),
    ]  # fmt: skip
    assert fastest.sentences(results) == [
        "tiled: fastest with T=2, 1.250x as fast as with T=3, the second (95% interval 1.240 - 1.343)."
    ]


def test_variants_that_cannot_be_told_apart_have_no_winner() -> None:
    one, other = with_speedup("k[A=1,B=2]", 0.9, 1.0, 1.1), with_speedup("k[A=2,B=2]", 0.9, 1.01, 1.1)
    assert fastest.sentences([one, other]) == [
        "k: A=2,B=2 and A=1,B=2, the fastest two, cannot be told apart: the first is 1.010x as fast as the second "
        "(95% interval 0.8697 - 1.157)."
    ]
    few = [with_speedup(f"k[A={i}]", None, i, None, environment=EMULATION, emulated=True) for i in (1, 2)]
    at_two_shapes = [*few, with_speedup("k", None, 1.0, None, shape={**SHAPE, "M": 1})]
    (told,) = fastest.sentences(at_two_shapes)
    assert told.startswith("k at M=2048,K=8192,N=4096: under emulation, A=2 and A=1, the fastest two, cannot be told")
    assert "too few rounds for an interval; a larger --budget allows more" in told
