"""Which accesses of 16 bytes a profile counts as two, by the assembly code that g++ makes of them."""

from __future__ import annotations

import pytest

from cuda_on_cpu.emulator.narrow_accesses import mark

COPY = """\
\tcall\t__tsan_write16@PLT
\tmovq\t%r12, %rdi
\tcall\t__tsan_read16@PLT
\tvmovdqa\t(%rsp), %xmm0
\tv{load}\t16(%r12), %xmm1
\tv{store}\t%xmm1, 0(%rbp)
"""


@pytest.mark.parametrize(("load", "by_8"), [("movdqa", False), ("movaps", False), ("movdqu", True), ("movups", True)])
@pytest.mark.parametrize("store", ["movdqa", "movupd"])
def test_an_access_by_an_instruction_for_any_address_is_marked(load: str, by_8: bool, store: str) -> None:
    text = mark(COPY.format(load=load, store=store))
    assert ("emulator_read16_by_8@PLT" in text, "__tsan_read16@PLT" in text) == (by_8, not by_8)
    assert ("emulator_write16_by_8@PLT" in text) is (store == "movupd")


@pytest.mark.parametrize(
    "between",
    [
        "\tcall\t__tsan_read4@PLT",  # of another access
        "\t.size\tkernel, .-kernel",  # of another function
        "\tvmovdqa\t(%rbx), %xmm3",
        "\tmovq\t(%rbx), %r12",
    ],
)
def test_only_the_next_load_belongs_to_a_report(between: str) -> None:
    text = f"\tcall\t__tsan_read16@PLT\n{between}\n\tvmovdqu\t(%rbx), %xmm0\n"
    assert ("by_8" in mark(text)) is ("movq" in between)
