"""Triton candidates on the emulated device: the interpreter's results, where a GPU's differ from plain numpy's."""

import importlib
import importlib.util
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from support.command import Harness
from support.emulated_process import emulated, inside  # noqa: F401 - a fixture

from cuda_on_cpu.emulator import triton_interpreter
from kernel_harness.api import Evaluator
from kernel_harness.core.errors import UserError
from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.diagnostics.sanitizer import sanitize
from kernel_harness.problem.candidate import Candidate, read
from kernel_harness.problem.problem import load

pytestmark = pytest.mark.slow

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine")
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

PRODUCT = """
import torch

M = 40
K = 48
N = 36


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + i[:, None] * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
        total += tl.dot(x, y, input_precision="ieee")
    tl.store(c + i[:, None] * N + j[None, :], total, mask=(i[:, None] < M) & (j[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty(M, N, device=a.device, dtype=a.dtype)
        product[triton.cdiv(M, 16), triton.cdiv(N, 16)](a, b, c, M, N, K, BM=16, BN=16, BK=16)
        return c


def helper():
    return 0.0


@triton.jit
def mistaken(i):
    return i + absent
"""
WARMUP = "product.warmup(a, b, c, M, N, K, BM=16, BN=16, BK=16, grid=(1,))"
ASM = 'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [i], dtype=tl.int32, is_pure=True, pack=1)'


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])])
def device(request):
    return request.param


@pytest.fixture(scope="module")
def evaluator(device, tmp_path_factory):
    problem = tmp_path_factory.mktemp("triton") / "product.py"
    problem.write_text(PRODUCT)
    with Evaluator(problem, device=device, budget_s=0.1) as evaluator:
        yield evaluator


@needs_triton
def test_a_right_kernel_passes_with_a_remark_on_what_the_interpreter_cannot_see(evaluator, device):
    result = evaluator.evaluate(KERNEL)
    assert result.status is Status.PASSED
    assert "a library" not in result.reason
    remarked = "interpreter ran the kernels" in result.reason
    assert remarked is (device == "cpu")


CHANGED = {
    "tf32 by default": ((', input_precision="ieee"', ""), Status.REDUCED_PRECISION, "tf32"),
    "a mask is missing": ((" & (j[None, :] < N))", ")"), Status.WRONG_VALUES, ""),
    "an unknown name": (("range(0, K, BK)", "range(0, K, BQ)"), Status.BUILD_ERROR,
        "candidate.py:12: Triton does not compile this kernel: NameError('BQ is not defined')"),
    "a block that no GPU multiplies": (
        ("BM=16, BN=16, BK=16", "BM=16, BN=16, BK=4"), Status.BUILD_ERROR, "candidate.py:16"),
    "a size that is no power of two": (
        ("BM=16, BN=16, BK=16", "BM=24, BN=16, BK=16"), Status.BUILD_ERROR, "candidate.py:9"),
    "too much shared memory": (("BM=16, BN=16, BK=16", "BM=16, BN=16, BK=64, num_stages=40"), Status.BUILD_ERROR,
        "Hardware limit: 232448"),
    "a size that is no constant": (("BK: tl.constexpr", "BK"), Status.BUILD_ERROR, "candidate.py:13"),
    "a mistake in a device function": (
        ("    total =", "    i = mistaken(i)\n    total ="), Status.BUILD_ERROR, "candidate.py:35"),
    "a function that is not compiled": (("total += tl.dot", "total += helper() + tl.dot"), Status.RUNTIME_ERROR,
        "Unsupported function referenced"),
    "an argument of an unknown type": (("(a, b, c, M, N, K, BM=16", "(a, b, c, M, N, object(), BM=16"),
        Status.RUNTIME_ERROR, "object"),
    "an unknown option": (("BK=16)", "BK=16, num_wraps=2)"), Status.RUNTIME_ERROR, "num_wraps"),
    "warps that are no power of two": (("BK=16)", "BK=16, num_warps=3)"), Status.RUNTIME_ERROR, "power of 2"),
    "writes behind an input": (("    total =", "    tl.store(a + M * K, 1.0)\n    total ="),
        Status.MUTATED_INPUT, ""),
}  # fmt: skip


@needs_triton
@pytest.mark.parametrize("name", list(CHANGED))
def test_a_mistake_is_judged_as_on_a_gpu(evaluator, name):
    (old, new), status, text = CHANGED[name]
    assert old in KERNEL
    result = evaluator.evaluate(KERNEL.replace(old, new, 1))
    assert result.status is status, result.reason
    assert text in result.reason


COMPILED = {
    "inline PTX": (("    total =", f"    i = {ASM}\n    total ="), "inline_asm"),
    "a warm-up": (("product[triton.cdiv", f"{WARMUP}\n        product[triton.cdiv"), "warmup"),
}


@needs_triton
@pytest.mark.parametrize("name", list(COMPILED))
def test_what_only_a_compiler_can_do_is_unsupported_without_a_gpu(evaluator, device, name):
    (old, new), text = COMPILED[name]
    result = evaluator.evaluate(KERNEL.replace(old, new, 1))
    if device == "cpu":
        assert result.status is Status.UNSUPPORTED and text in result.reason
    else:
        assert result.status is Status.PASSED


@needs_triton
def test_a_call_that_the_interpreter_is_too_slow_for_is_unsupported(device, tmp_path):
    if device != "cpu":
        pytest.skip("a GPU needs no interpreter")
    for name, text in (("product", PRODUCT), ("tiled", KERNEL.replace("16)](", "16), 10**6]("))):
        (tmp_path / f"{name}.py").write_text(text)
    words = ("--problem", tmp_path / "product.py", "--kernel", tmp_path / "tiled.py", "--device", "cpu")
    finished = Harness(tmp_path).run(*words, "--timeout", "2", "--quick", "--json")
    result = finished.results["tiled"]
    assert result["status"] == "UNSUPPORTED" and "Triton's interpreter runs the programs" in result["reason"]
    assert "--shape" in result["reason"] and "a loop that never ends" in finished.stderr


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="Triton is installed")
def test_a_machine_without_triton_says_how_to_install_it(evaluator):
    result = evaluator.evaluate(KERNEL)
    assert result.status is Status.UNSUPPORTED
    assert result.reason.startswith("No module named 'triton'") and "pip install triton" in result.reason


@needs_triton
def test_a_kernel_for_show_is_remarked(evaluator, device):
    if device != "cpu":
        pytest.skip("the kernel takes as long as the product at this size")
    source = KERNEL.replace("        return c", "        return a @ b")
    assert "100.00% of the output is the same without" in evaluator.evaluate(source).reason


@needs_triton
def test_sanitize_says_that_it_sees_only_cuda(tmp_path):
    for name, text in (("product", PRODUCT), ("tiled", KERNEL)):
        (tmp_path / f"{name}.py").write_text(text)
    problem, candidate = load("product", tmp_path / "product.py"), read(tmp_path / "tiled.py")
    with pytest.raises(UserError, match="tiled imports Triton, whose interpreter"):
        sanitize.run(sanitize.Request(problem, candidate, "cpu", {}, 0), None, lambda text: None)


@needs_triton
def test_a_profile_has_the_resources_of_each_triton_kernel(tmp_path):
    for name, text in (("product", PRODUCT), ("tiled", KERNEL.replace("BK=16)", "BK=16, num_warps=2)"))):
        (tmp_path / f"{name}.py").write_text(text)
    words = ("profile", tmp_path / "product.py", tmp_path / "tiled.py", "--device", "cpu")
    printed = Harness(tmp_path).run(*words).stdout
    row = next(line for line in printed.split("\n") if line.startswith("product "))
    assert re.search(r"BM=16, BN=16, BK=16, num_warps=2 +\d+ +\d.* kB +\d+ B +2 +3 +\d+ +\d+% +\w+", row), printed
    assert "launched no kernel" not in printed


@pytest.mark.parametrize("line", ["import triton", "    from triton import jit", "import torch, triton.language as tl"])
def test_an_import_of_triton_is_seen_in_the_source(line):
    assert Candidate("k", Path("k.py"), f"import torch\n{line}\n").imports_triton


def test_another_name_is_no_import_of_triton():
    assert not Candidate("k", Path("k.py"), "import tritonclient\n# import triton\ntriton = 1\n").imports_triton


@pytest.mark.parametrize("module", ["cupy", "tilelang", "numba.cuda", "cuda.no_such_module"])
def test_another_way_to_write_kernels_is_unsupported(evaluator, device, module):
    if device != "cpu":
        pytest.skip("the module may be installed on a machine with a GPU")
    result = evaluator.evaluate(f"import {module}\n{KERNEL}")
    assert result.status is Status.UNSUPPORTED
    assert module.partition(".")[0] in result.reason


@emulated
def test_a_process_that_is_prepared_for_many_problems_finds_modules_as_fast_as_before():
    """A fork server prepares itself for each problem of a suite."""
    for _ in range(3):
        Emulated().prepare_worker()
    assert [type(finder) for finder in sys.meta_path].count(triton_interpreter._Finder) == 1


def test_a_module_that_exists_nowhere_is_the_candidates_fault(evaluator):
    assert evaluator.evaluate(f"import tirton\n{KERNEL}").status is Status.LOAD_ERROR


def _kernels():
    return importlib.import_module("emulator.triton_kernels")


@needs_triton
@emulated
def test_arithmetic_on_bfloat16_is_that_of_bfloat16():
    x, y = torch.randn(2, 200, device="cuda").bfloat16()
    out = torch.empty_like(x)
    _kernels().bfloat16_arithmetic[(4,)](x, y, out, 200, BLOCK=64)
    expected = torch.where(x > y, x * y, x + y) - 0.5 * torch.maximum(x, y)
    assert torch.equal(out, expected)
    _kernels().bfloat16_functions[(4,)](x, out, 200, BLOCK=64)
    assert torch.equal(out, x.float().exp().bfloat16())


@needs_triton
@emulated
def test_sums_and_products_of_bfloat16_have_its_precision():
    x = torch.randn(4, 100, device="cuda").bfloat16()
    out = torch.empty(4, device="cuda", dtype=torch.bfloat16)
    _kernels().row_sums[(4,)](x, out, 100, BLOCK=128)
    torch.testing.assert_close(out, x.float().sum(1).bfloat16(), rtol=2**-7, atol=0)
    a, b = torch.randn(2, 32, 32, device="cuda").bfloat16()
    product = torch.empty(32, 32, device="cuda")
    _kernels().product[(1,)](a, b, product, N=32, PRECISION="ieee")
    torch.testing.assert_close(product, a.float() @ b.float(), rtol=1e-5, atol=1e-5)


@needs_triton
@emulated
def test_products_of_float32_have_the_precision_that_the_kernel_asks_for():
    a, b = torch.randn(2, 32, 32, device="cuda")
    exact, out = a.double() @ b.double(), torch.empty(32, 32, device="cuda")

    def error(precision):
        _kernels().product[(1,)](a, b, out, N=32, PRECISION=precision)
        return float((out - exact).norm() / exact.norm())

    assert error("ieee") < 1e-6 and error("tf32x3") < 1e-5
    assert 1e-4 < error("tf32") < 2e-3


@needs_triton
@emulated
def test_functions_of_libdevice_have_their_values():
    x = torch.linspace(-3, 3, 50, device="cuda")
    out = torch.empty_like(x)
    _kernels().library_functions[(1,)](x, out, 50, BLOCK=64)
    torch.testing.assert_close(out, x.tanh() + x.abs() ** 1.5 + x.round())
    x = torch.linspace(-3, 3, 64, device="cuda")
    out = torch.empty_like(x)
    _kernels().functions_by_name[(1,)](x, out, BLOCK=64)
    torch.testing.assert_close(out, x.tanh() + x.exp())
    assert len(triton_interpreter.compiled()) == 2
    with pytest.raises(Exception, match="__nv_j0f is not emulated"):
        _kernels().unknown_function[(1,)](x, out, BLOCK=32)


@needs_triton
@emulated
def test_a_tuned_kernel_runs_with_its_first_configuration():
    x = torch.randn(100, device="cuda")
    out = torch.empty_like(x)
    _kernels().tuned[lambda meta: (-(-100 // meta["BLOCK"]),)](x, out, 100)
    assert torch.equal(out, x + 1) and _kernels().tuned.best_config.kwargs == {"BLOCK": 32}
    assert _kernels().active_device() == x.device


@needs_triton
@emulated
def test_a_configuration_that_needs_too_much_shared_memory_is_skipped():
    a, b = torch.randn(2, 64, 64, device="cuda")
    out = torch.empty_like(a)
    _kernels().tuned_product[(1,)](a, b, out, 64, N=64)
    assert _kernels().tuned_product.best_config.kwargs == {"BLOCK": 16}
    torch.testing.assert_close(out, a @ b, rtol=1e-5, atol=1e-4)


@needs_triton
@emulated
def test_a_kernel_that_does_not_compile_raises_the_error_of_the_compiler():
    for _ in range(2):  # it is compiled once
        with pytest.raises(Exception, match="missing is not defined") as raised:
            _kernels().fails_inside[(1,)](torch.zeros(32, device="cuda"), BLOCK=32)
        assert type(raised.value).__module__ == "triton.compiler.errors"


@needs_triton
@emulated
def test_a_compiler_that_fails_for_a_reason_of_its_own_fails_no_kernel():
    x, before = torch.zeros(32, device="cuda"), triton_interpreter.compiled()
    with tempfile.TemporaryDirectory() as folder:
        killed = Path(folder) / "ptxas"
        killed.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "release 13.0, V13.0.88" || kill -9 $$\n')
        killed.chmod(0o700)
        os.environ["TRITON_PTXAS_BLACKWELL_PATH"] = str(killed)
        _kernels().counts[(1,)](x, BLOCK=32)
    assert torch.equal(x.cpu(), torch.arange(32.0)) and triton_interpreter.compiled() == before


@needs_triton
@emulated
def test_a_machine_that_starts_no_further_process_compiles_nothing():
    def no_process():
        raise BlockingIOError

    x, os.fork = torch.zeros(32, device="cuda"), no_process
    _kernels().counts[(1,)](x, BLOCK=32)
    assert torch.equal(x.cpu(), torch.arange(32.0)) and not triton_interpreter.compiled()
