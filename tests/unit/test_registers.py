"""Variables of a kernel that have no value before it adds to them, found in the source."""

from __future__ import annotations

import pytest
from support.command import ROOT

from kernel_harness.explain.registers import remark


@pytest.mark.parametrize(
    "body",
    [
        "float s; for (int i = 0; i < n; ++i) s += x[i]; x[0] = s;",
        "float acc[4][4];\nfor (int i = 0; i < n; ++i) acc[i][0] += x[index[i]]; x[0] = acc[0][0];",
        "float t, s; t = 0; s -= x[0]; x[0] = t + s;",
        "float4 s; s.x += x[0]; x[0] = s.x;",
        "float s; for (int i = 0; i < n; ++i) { s += x[i]; } x[0] = s; s = 0; s += x[1]; x[1] = s;",
        "float s; for (int i = 0; i < n; ++i) s = fmaf(x[i], x[i], s); x[0] = s;",
        "float m; for (int i = 0; i < n; ++i) m = fmaxf(m, x[i]); x[0] = expf(m);",
    ],
)
def test_a_variable_without_a_value(body: str) -> None:
    found = remark(f"__global__ void k(float* x, int n) {{\n{body}\n}}")
    assert found and found.line == 2 and "has no value before" in found.text and found.advice


@pytest.mark.parametrize(
    "body",
    [
        "float s; s = 0; s += x[0];",
        "float s[4]; for (int i = 0; i < 4; ++i) s[i] = 0; s[1] += x[0];",
        "float s[4]; clear(s); s[1] += x[0];",
        "float s[4]; clear(s[0]); s[1] += x[0];",
        "float s; load(&s); s += x[0];",
        "float s; for (int i = 0; i < n; ++i) if (i) s += x[i]; else s = 0;",
        "float s; for (int i = 0; i < n; ++i) { if (i) { s += x[i]; continue; } s = 0; }",
        "__shared__ float s[4]; s[1] += x[0];",
        'float s; asm("ld" : "=f"(s)); s += x[0];',
        "unsigned f; while ((f = x[1]) == 0) {} x[0] += f;",
        "float s[4]; // s[0] += x[0]",
    ],
)
def test_a_variable_that_may_have_a_value(body: str) -> None:
    assert remark(f"__global__ void k(float* x, int n) {{\n{body}\n}}") is None


def test_a_member_of_a_class_is_no_register() -> None:
    assert remark("struct Sum { float s; void add(float x) { s += x; } };") is None


def test_no_shipped_or_honest_kernel_has_one() -> None:
    folders = (ROOT / "kernels", ROOT / "tests" / "adversarial" / "honest", ROOT / "tests" / "emulator")
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".cu")]
    assert len(files) > 100 and not [path for path in files if remark(path.read_text())]
