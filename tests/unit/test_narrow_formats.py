"""The advice for reduced precision names the line that names a narrow number format."""

from __future__ import annotations

import time

import pytest

from kernel_harness.checking.narrow_formats import advised
from kernel_harness.checking.verify import Check
from kernel_harness.core.status import Status

REDUCED = Check("c", Status.REDUCED_PRECISION, detail="too coarse")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("    __half acc = 0;", "__half"),
        ("    sum += __half2float(__float2half(x));", "__half2float"),
        ("    half2 pair = pairs[i];", "half2"),
        ("    half sum;", "half"),
        ("    half* tile = reinterpret_cast<half*>(shared);", "half"),
        ("    nv_bfloat16 sum;", "nv_bfloat16"),
        ("wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a;", "precision::tf32"),
        ("cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH);", "CUBLAS_TF32_TENSOR_OP_MATH"),
        ("auto a = A.to(torch::kHalf);", "torch::kHalf"),
        ("        return (A.to(torch.bfloat16) @ B).float()", "torch.bfloat16"),
        ("        return (A.half() @ B.half()).float()", ".half()"),
        ('asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0}"',
         "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
    ],
)  # fmt: skip
def test_the_line_with_a_narrow_format_is_named(line: str, name: str) -> None:
    source = f"# keeps no __half\n// nor torch::kHalf\nconst int half = n / 2;\n{line}\n"
    assert advised(REDUCED, source).advice == f"line 4 uses {name}: keep products and sums in float32"


def test_a_product_of_triton_without_a_precision_is_named() -> None:
    right = 'acc += tl.dot(x, y, input_precision="ieee")  # not tl.dot(x, y)'
    advice = advised(REDUCED, f"{right}\nacc += tl.dot(x, y)\n").advice
    told = "line 2: tl.dot multiplies float32 numbers as TF32"
    assert advice == f'{told}: write tl.dot(..., input_precision="ieee")'


def test_without_such_a_line_a_wrong_formula_is_suggested() -> None:
    advice = advised(REDUCED, "int half = n / 2; x = half * x;  // torch.half\n#define N 4\n").advice
    assert "no line of the source names a narrower format" in advice


@pytest.mark.parametrize("line", ["mma.sync." * 100_000, "tl.dot(" * 100_000 + "input_precision"])
def test_a_line_of_a_megabyte_takes_less_than_seconds(line: str) -> None:
    start = time.process_time()
    advised(REDUCED, line)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.REDUCED_PRECISION])
def test_other_checks_stay_as_they_are(status: Status) -> None:
    check = Check("c", status, detail="d")
    assert advised(check, "__half acc = 0;") is check
