"""The atomic updates that a profile counts as one: those that add 1 and do not use the old value."""

from __future__ import annotations

import pytest

from cuda_on_cpu.compile.cuda_source import joined, tokenize, with_additions
from cuda_on_cpu.emulator.counted_updates import marks

KERNEL = """__global__ void kernel(int* sums, int i) {
    STATEMENT
}
"""


@pytest.mark.parametrize("statement", [
    "atomicAdd(&sums[i], 1);",
    "if (i > 3) atomicAdd(sums + i, 1u);",
    "for (int k = 0; k < i; ++k) { atomicAdd_block(&sums[k % 2], 1U); }",
    "if (i) sums[0] = 0; else atomicAdd(&sums[min(i, 3)], /* one */ 1) ;",
])  # fmt: skip
def test_a_statement_that_counts_up_is_marked_where_it_begins(statement: str) -> None:
    source = KERNEL.replace("STATEMENT", statement)
    ((at, _, text),) = marks(source)
    rest = joined(tokenize(source)[at:])

    assert rest.startswith("atomicAdd") and text == "emulator_counts_up(), "
    marked = with_additions(source, [(at, at, text)]).split("\n")
    (line,) = (number for number, each in enumerate(marked) if each.startswith("#line 2"))
    assert marked[line + 1] == " " * source.split("\n")[1].index("atomicAdd") + rest.split("\n")[0]


@pytest.mark.parametrize("statement", [
    "const int before = atomicAdd(&sums[i], 1);",
    "sums[atomicAdd(&sums[0], 1)] = i;",
    "sums[0] = (int)atomicAdd(&sums[1], 1);",
    "while (atomicAdd(&sums[i], 1) < 3);",
    "return atomicAdd(&sums[i], 1);",
    "atomicAdd(&sums[i], 2);",
    "atomicAdd(&sums[i], i + 1);",
    "atomicAdd(&sums[i], 1), ++i;",
    "atomicMax(&sums[i], 1);",
    "// atomicAdd(&sums[i], 1);",
    "\n#define COUNT(k) { atomicAdd(&sums[k], 1); }",
    "\n#define COUNT(k) { \\\n    atomicAdd(&sums[k], 1); }",
])  # fmt: skip
def test_no_other_statement_is_marked(statement: str) -> None:
    assert marks(KERNEL.replace("STATEMENT", statement)) == []
