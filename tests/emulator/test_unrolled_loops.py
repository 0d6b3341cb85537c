"""The loops that a profile counts as nvcc unrolls them: which ones, and whether the remaining steps come last."""

from __future__ import annotations

import re

import pytest

from cuda_on_cpu.compile.cuda_source import with_additions
from cuda_on_cpu.emulator.unrolled_loops import marks

KERNEL = """constexpr int WIDTH = 192, HEIGHT = 4;
template <int STEP, typename T>
__global__ void kernel(const float* x, const int* ends, float* y, int n) {
    const int lane = threadIdx.x;
    const float first = x[0];
    float sum = 0;
    int count = 0;
    LOOP
    y[lane] = sum + count;
}
"""


def mark(source: str) -> str:
    return with_additions(source, marks(source))


def found(loop: str) -> list[str]:
    """Whether the remaining steps of the loop come last: "true" or "false". Empty if the loop is not marked."""
    return re.findall(r"EMULATOR_UNROLLED\((\w+)\)", mark(KERNEL.replace("LOOP", loop)))


@pytest.mark.parametrize(
    "loop",
    [
        "for (int i = lane; i < n; ++i) sum += x[i];",
        "for (int i = lane; i <= n; i += 32) { if (x[i] > 0) sum += x[i]; }",
        "for (int i = lane; i < n / 4; i += WIDTH) sum += x[i];",
        "for (int i = lane; i < n; i += STEP) sum += x[i];",
        "for (int i = n; i > lane; --i) y[i] = x[i];",
        "for (int i = lane; i < ends[lane]; i++) sum += x[i];",
        "for (int i = lane; i < n; i += STEP)\n        if (x[i] > sum) {\n            sum = x[i];\n        }",
    ],
)
def test_a_loop_with_a_constant_step_is_marked(loop: str) -> None:
    assert found(loop) == ["false"]


@pytest.mark.parametrize(
    "loop",
    [
        "for (int i = lane; i < n; i += blockDim.x) sum += x[i];",  # nvcc would have to divide by the step
        "for (int i = lane; i < n; i += warpSize) sum += x[i];",
        "for (int i = lane; i < n; i *= 2) sum += x[i];",
        "for (int i = 0; i < 8; ++i) sum += x[i];",
        "for (int i = lane; i < WIDTH * HEIGHT; i += STEP) sum += x[i];",
        "for (int i = lane; i < n && sum < 1; ++i) sum += x[i];",
        "for (int i = lane; i < n; ++i) { if (x[i] > 0) break; sum += x[i]; }",
        "for (int i = lane; i < n; ++i) sum += __shfl_xor_sync(~0u, x[i], 1);",
        "for (int i = lane; i < n; ++i) { y[i] = sum; __syncthreads(); }",
        "for (int i = lane; i < n; ++i) sum += sinf(x[i]);",
        "for (int i = lane; i < n; ++i) { " + "sum = sum * sum + 1; " * 14 + "}",  # 42 operations and assignments
        "for (int i = lane; i < ends[0]; ++i) y[i] = 1;",  # which may write to `ends`
        "#pragma unroll 1\n    for (int i = lane; i < n; ++i) sum += x[i];",
        "// for (int i = lane; i < n; ++i) sum += x[i];",
        "call([&] { for (int i = lane; i < n; ++i) sum += x[i]; });",
    ],
)
def test_other_loops_are_not_marked(loop: str) -> None:
    assert found(loop) == []


@pytest.mark.parametrize("function", ["", "constexpr __device__ "])
def test_host_code_and_functions_for_the_compiler_are_not_marked(function: str) -> None:
    source = function + "int sum(const int* x, int n) { int s = 0; for (int i = 0; i < n; ++i) s += x[i]; return s; }"
    assert mark(source) == source
    assert mark("__device__ " + source.replace("constexpr ", "")) != source


def test_of_nested_loops_the_inner_one_is_marked() -> None:
    marked = mark(KERNEL.replace("LOOP", "for (int j = 0; j < n; ++j)\n for (int i = lane; i < n; ++i) sum += x[i];"))
    assert marked.count("EMULATOR_UNROLLED(") == 1
    assert "::emulator::begins_step(emulator_loop, i)" in marked


@pytest.mark.parametrize(
    ("loop", "last"),
    [
        ("for (int i = 0; i < n; ++i) sum += x[i];", "true"),
        ("for (int i = lane; i < n; ++i) count += x[i] > 0;", "true"),
        ("for (int i = lane; i < n; ++i) if (x[i] > 0) ++count;", "true"),
        ("for (int i = lane; i < n; ++i) sum += x[i] * count;", "false"),
        ("for (int i = lane + 1; i < n; ++i) y[i] = first;", "false"),
    ],
)
def test_the_remaining_steps_come_last_if_an_integer_begins_with_a_constant(loop: str, last: str) -> None:
    assert found(loop) == [last]


def test_lines_and_columns_stay_as_they_are() -> None:
    source = KERNEL.replace("LOOP", "/* é */ for (int i = 0; i < n; ++i) sum += x[i];")
    places = {}
    line = 1
    for text in mark(source).split("\n"):
        directive = re.fullmatch(r"#line (\d+)", text)
        if directive:
            line = int(directive[1])
            continue
        for word in re.finditer(rb"\w+", text.encode()):
            places[word[0], line] = word.start()
        line += 1
    for number, text in enumerate(source.split("\n"), 1):
        for word in re.finditer(rb"\w+", text.encode()):
            at = [match.start() for match in re.finditer(rb"\b" + word[0] + rb"\b", text.encode())]
            assert places[word[0], number] == at[-1]
