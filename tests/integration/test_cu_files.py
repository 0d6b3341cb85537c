"""Plain `.cu` kernels: the arguments of `forward`, the reference's weights among them, and the lines of errors."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
import torch
from support.command import CANDIDATES, Harness

from cuda_on_cpu.compile.errors import BuildFailed
from kernel_harness.compile.cu_file import arguments, forward_of, module_text

# y = activation(x W' + bias) + offset, with 5 rows of 7 numbers, and 3 outputs.
LINEAR = CANDIDATES / "new" / "linear.py"
RIGHT = """// The weights come after the inputs, in the order of the reference's state dict.
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>

__global__ void linear(const float* x, const float* weight, const float* bias, const float* offset, float* y, int k) {
    float sum = bias[threadIdx.x];
    for (int i = 0; i < k; ++i) sum += x[blockIdx.x * k + i] * weight[threadIdx.x * k + i];
    y[blockIdx.x * blockDim.x + threadIdx.x] = (sum > 0 ? sum : 0.1f * sum) + offset[threadIdx.x];
}

torch::Tensor forward(torch::Tensor x, torch::Tensor offset, torch::Tensor linear_weight, torch::Tensor linear_bias) {
    auto y = torch::empty({x.size(0), linear_bias.size(0)}, x.options());
    linear<<<x.size(0), linear_bias.size(0)>>>(
        x.data_ptr<float>(), linear_weight.data_ptr<float>(), linear_bias.data_ptr<float>(), offset.data_ptr<float>(),
        y.data_ptr<float>(), x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
SOURCES = {
    "right": RIGHT,
    "bad_launch": RIGHT.replace("<<<x.size(0), linear_bias.size(0)>>>", "<<<x.size(0), 4096>>>"),
    "unchecked_launch": RIGHT.replace("<<<x.size(0), linear_bias.size(0)>>>", "<<<x.size(0), 4096>>>").replace(
        "    C10_CUDA_KERNEL_LAUNCH_CHECK();\n", ""
    ),
    "marked": "\ufeff" + RIGHT,  # a byte order mark, as editors on Windows write it
    "raises": RIGHT.replace("    return y;", "    return y.view({-1, 1000});"),
    "pointers": RIGHT[: RIGHT.index("torch::Tensor forward")] + "void forward(const float* x, float* y, int n) {\n}\n",
    "without_bias": RIGHT.replace("float sum = bias[threadIdx.x];", "float sum = 0;"),
    "without_parameters": RIGHT.replace(
        ", torch::Tensor offset, torch::Tensor linear_weight, torch::Tensor linear_bias", ""
    ).replace(
        "    auto y",
        "    auto offset = torch::zeros({3}, x.options()), linear_weight = torch::ones({3, 7}, x.options()),"
        " linear_bias = offset;\n    auto y",
    ),
    "wrong_signature": RIGHT.replace(", torch::Tensor offset,", ",").replace("offset.data_ptr<float>()", "nullptr"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """One run with all kernels."""
    folder = tmp_path_factory.mktemp("kernels")
    for name, source in SOURCES.items():
        (folder / f"{name}.cu").write_text(source)
    kernels = [word for name in SOURCES for word in ("--kernel", folder / f"{name}.cu")]
    harness = Harness(tmp_path_factory.mktemp("run"))
    return harness.run("--problem", LINEAR, *kernels, "--device", "cpu", "--rounds", "1", "--json").results


def line_of(text: str) -> int:
    return RIGHT[: RIGHT.index(text)].count("\n") + 1


def beginning(results: dict[str, dict[str, Any]], name: str) -> str:
    """The reason of a failure from the file's name on."""
    reason = str(results[name]["reason"])
    return reason[reason.index(f"{name}.cu:") :]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["right", "marked"])
def test_forward_gets_the_reference_s_weights_after_the_inputs(name: str, results: dict[str, dict[str, Any]]) -> None:
    assert results[name]["status"] == "PASSED", results[name]["reason"]


@pytest.mark.slow
def test_parameters_that_a_kernel_could_ignore_get_a_remark(results: dict[str, dict[str, Any]]) -> None:
    assert (
        "checked at their initial values only, so a kernel that ignores them would pass: offset (1)."
        in (results["right"]["reason"])
    )


@pytest.mark.slow
def test_a_failed_launch_names_the_line_of_the_check_that_found_it(results: dict[str, dict[str, Any]]) -> None:
    line = line_of("C10_CUDA_KERNEL_LAUNCH_CHECK")
    said = beginning(results, "bad_launch")
    assert said.startswith(f"bad_launch.cu:{line}: RuntimeError: CUDA error: invalid configuration argument")
    assert "(the block is 4096x1x1: at least 1x1x1 and at most 1024x1024x64 is possible)" in said
    assert "raised at" not in said


@pytest.mark.slow
def test_a_failed_launch_without_a_check_names_the_limit_too(results: dict[str, dict[str, Any]]) -> None:
    said = results["unchecked_launch"]["reason"]
    assert (
        "fails (invalid configuration argument: the block is 4096x1x1: at least 1x1x1 and at most 1024x1024x64" in said
    )
    assert f"unchecked_launch.cu:{line_of('linear<<<')}" in said


@pytest.mark.slow
def test_an_error_of_torch_names_the_line_of_forward(results: dict[str, dict[str, Any]]) -> None:
    assert beginning(results, "raises").startswith(f"raises.cu:{line_of('torch::Tensor forward')}: RuntimeError: shape")


@pytest.mark.slow
def test_a_wrong_signature_is_named_with_what_forward_gets(results: dict[str, dict[str, Any]]) -> None:
    assert beginning(results, "wrong_signature").startswith(
        f"wrong_signature.cu:{line_of('torch::Tensor forward')}: TypeError: forward takes 3 arguments, but the problem "
        "has 1 input. A .cu file's forward gets the problem's inputs in order (5x7), and then either nothing or all "
        "parameters of the reference in this order: offset (3), linear_weight (3x7), linear_bias (3)."
    )


@pytest.mark.slow
def test_a_parameter_that_the_kernel_does_not_read_is_named(results: dict[str, dict[str, Any]]) -> None:
    assert results["without_bias"]["status"] == "WRONG_VALUES"
    assert "reference's answer with 0 in place of the parameter linear.bias." in results["without_bias"]["reason"]


@pytest.mark.slow
def test_parameters_that_forward_does_not_take_are_named(results: dict[str, dict[str, Any]]) -> None:
    assert results["without_parameters"]["status"] == "WRONG_VALUES"
    assert results["without_parameters"]["reason"].endswith(
        "forward takes no parameter of the reference. It takes all of them after the inputs: offset (3), linear_weight "
        "(3x7), linear_bias (3)."
    )


@pytest.mark.slow
def test_a_forward_that_takes_pointers_is_shown_with_the_right_one(results: dict[str, dict[str, Any]]) -> None:
    said = beginning(results, "pointers")
    line = line_of("torch::Tensor forward")
    assert results["pointers"]["status"] == "BUILD_ERROR"
    assert said.startswith(f"pointers.cu:{line}: error: forward takes pointers\n  {line} | void forward(const float* x")
    assert "torch::Tensor forward(torch::Tensor a, ...)" in said and "`new PROBLEM NAME --cu`" in said


@pytest.mark.parametrize(
    ("definition", "what", "hint"),
    [
        ("torch::Tensor product(torch::Tensor a)", "no 'torch::Tensor forward", "give the function 'product' the name"),
        (
            'extern "C" void solve(const float* a, float* b)',
            "no 'torch::Tensor",
            "forward that calls 'solve'. forward ",
        ),
        (
            "std::map<int, at::Tensor> forward(at::Tensor a)",
            "forward returns 'std::map<int, at::Tensor>', not",
            "torch::empt",
        ),
        ("__global__ void __launch_bounds__(64)\nadd(float* a)", "no 'torch::Tensor forward", "hint: forward gets the"),
        ("// forward (\n__global__ void add(float* a)", "k.cu: error: no 'torch::Tensor forward", "hint: forward gets"),
    ],
)
def test_a_file_without_forward_is_told_what_it_has_instead(definition: str, what: str, hint: str) -> None:
    with pytest.raises(BuildFailed) as raised:
        module_text("k.cu", f"#include <x.h>\n{definition} {{\n    if (a) {{ }} else if (b) {{ }}\n}}\n")
    assert what in str(raised.value) and hint in str(raised.value)


# ------------------------------------------------------------------------------------------- arguments


X, W, B = torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(4)
STATE = {"0.weight": W, "0.bias": B}


def given(parameters: str, state: dict[str, torch.Tensor], *, known: bool = True) -> list[Any]:
    forward = forward_of(f"// k\ntorch::Tensor forward({parameters}) {{")
    return list(arguments("k.cu", forward, [X], state, known))


def test_the_parameters_of_forward_are_found_with_their_line() -> None:
    forward = forward_of(
        "\nat::Tensor forward(const at::Tensor& a,\n    std::array<std::pair<A, B>, 2> b, int c = 1) {"
    )
    assert forward is not None
    assert (forward.line, forward.parameters) == (2, ("a", "b", "c"))


LONG = {
    "nested brackets": f"torch::Tensor x /* {'<' * 100_000}{'>' * 100_000} */) {{",
    "no end of the parameters": "torch::Tensor x,\ntorch::Tensor forward(" * 20_000,
}


@pytest.mark.parametrize("parameters", LONG.values(), ids=LONG.keys())
def test_a_file_of_half_a_megabyte_takes_less_than_seconds(parameters: str) -> None:
    """The judge looks for `forward`, too, in a file that may be meant to stop it."""
    start = time.process_time()
    forward_of(f"torch::Tensor forward({parameters}")
    assert time.process_time() - start < 1


def test_weights_are_passed_only_to_a_forward_that_names_them_all() -> None:
    assert given("torch::Tensor x", STATE) == [X]
    assert all(a is b for a, b in zip(given("at::Tensor x, at::Tensor w, at::Tensor b", STATE), (X, W, B), strict=True))
    with pytest.raises(TypeError, match=r"forward takes 2 arguments.*\(raised at k\.cu:2\)"):
        given("torch::Tensor x, torch::Tensor w", STATE)
    with pytest.raises(TypeError, match=re.escape("in order (2x3); the reference has no parameters.")):
        given("torch::Tensor x, torch::Tensor w", {})
    with pytest.raises(TypeError, match="forward takes 0 arguments, but the problem has 1 input"):
        given("", {})


def test_weights_that_are_named_in_another_order_are_refused() -> None:
    state = {"weight": W, "bias": B}
    with pytest.raises(TypeError, match=r"forward takes bias, weight in this order.* weight \(4x3\), bias \(4\)"):
        given("torch::Tensor x, torch::Tensor bias, torch::Tensor weight", state)


def test_a_file_that_binds_its_functions_itself_may_have_defaults() -> None:
    assert given("torch::Tensor x, int64_t k", STATE, known=False) == [X]
    assert len(given("torch::Tensor x, at::Tensor w, at::Tensor b", STATE, known=False)) == 3


@pytest.mark.parametrize("returned", ["std::tuple<torch::Tensor, at::Tensor>", "std::vector<at::Tensor>"])
def test_forward_may_return_several_tensors(returned: str) -> None:
    found = forward_of(f"// two outputs\n{returned} forward(torch::Tensor x, double scale) {{ return {{x, x}}; }}")
    assert found and found.line == 2 and found.parameters == ("x", "scale")
    assert found.declaration == f"{returned} forward(torch::Tensor x, double scale)"


@pytest.mark.parametrize("before", ["void f() { }", "int x;", "int x;  ", "", "/* a\n*/\n"])
def test_forward_may_follow_other_code_on_its_line(before: str) -> None:
    found = forward_of(f"{before}torch::Tensor forward(torch::Tensor x) {{ return x; }}")
    assert found and found.declaration == "torch::Tensor forward(torch::Tensor x)"
    assert found.line == before.count("\n") + 1


def test_forward_may_have_its_type_behind_its_parameters() -> None:
    found = forward_of("auto forward(torch::Tensor x, int n)\n    -> std::vector<at::Tensor> { return {x}; }")
    assert found and found.parameters == ("x", "n")
    assert found.declaration == "auto forward(torch::Tensor x, int n) -> std::vector<at::Tensor>"


@pytest.mark.parametrize(
    "using",
    ["using torch::Tensor;", "using at::Tensor;", "using namespace torch;", "using Tensor = torch::Tensor;"],
)
def test_forward_may_leave_out_the_namespace_of_tensors(using: str) -> None:
    found = forward_of(f"{using}\nTensor forward(Tensor x, const at::Tensor& y) {{ return x; }}")
    assert found and found.parameters == ("x", "y")
    assert found.declaration == "torch::Tensor forward(torch::Tensor x, const at::Tensor& y)"
    assert forward_of("// " + using + "\nTensor forward(Tensor x) { return x; }") is None


def test_a_forward_in_a_comment_or_a_string_is_none() -> None:
    text = "torch::Tensor forward(torch::Tensor x) {"
    assert forward_of(f'/*\n{text} */\n// ; {text}\nauto s = R"(\n{text})";') is None


def test_comments_and_line_breaks_are_left_out_of_the_declaration_of_forward() -> None:
    found = forward_of('torch::Tensor forward(torch::Tensor x,  // rows\n    std::string how = "sum") {')
    assert found and found.declaration == 'torch::Tensor forward(torch::Tensor x, std::string how = "sum")'
    assert found.parameters == ("x", "how")
