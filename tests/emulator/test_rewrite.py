"""From CUDA C++ to C++: launches, dynamic shared memory, and the constructs that are reported instead."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda_on_cpu.compile.cuda_source import code_only
from cuda_on_cpu.emulator.rewrite import rewrite
from cuda_on_cpu.emulator.unsupported import find_in_log, find_in_torch_headers, without_bodies


def launch(source: str) -> tuple[str, str, str, str]:
    """Kernel, its printed name, configuration and arguments of the only launch in `source`, with single spaces."""
    text = " ".join(rewrite(source).split())
    pattern = (
        r"::emulator::Configuration\((?P<configuration>.*)\)\(\s*\"(?P<name>.*?)\", "
        r"\[=\]\(auto\.\.\. emulator_arguments\) \{ (?P<kernel>.*)\(emulator_arguments\.\.\.\); \}"
        r"(?:, (?P<arguments>.*))?\s*\);"
    )
    found = re.search(pattern, text)
    assert found, text
    assert "<<<" not in text
    return found["kernel"], found["name"], found["configuration"].strip(), (found["arguments"] or "").strip()


# ------------------------------------------------------------------------------------------- launches


@pytest.mark.parametrize(
    "configuration", ["1, 2", "grid, block, 0", "dim3(2, 3), dim3(4), 4 * sizeof(float), stream", "{1, 2}, {3, 4}"]
)
def test_a_launch_keeps_its_configuration_and_arguments(configuration):
    assert launch(f"k<<<{configuration}>>>(x, y + 1);") == ("k", "k", configuration, "x, y + 1")


@pytest.mark.parametrize(
    "kernel",
    [
        "k<float>",
        "k<float, 16>",
        "k<16, (N > 4)>",
        "k<f<g<1>>>",
        "k<std::pair<int, float>>",
        "space::inner::k",
        "space::k<T, N>",
        "::k",
        "space<T>::k",
        "(choose(a, b))",
        "(*table[i])",
    ],
)
def test_the_kernel_may_be_a_template_a_qualified_name_or_an_expression(kernel):
    assert launch(f"    {kernel}<<<1, 2>>>(x);")[0] == kernel


@pytest.mark.parametrize(
    "kernel",
    [
        "table[i]",
        "table[n % 4 == 0 ? 2 : 0]",
        "config.kernel",
        "this->kernel",
        "p->g[1]",
        "select(n)",
        "select<4>(n)",
        "space::select(n, m)",
        "::select(n)",
        "s.get()",
        "all()[i].at(j)->kernel",
        "(*p)[1]",
        "(*select)(n)",
        "static_cast<kernel_t>(p)",
    ],
)
@pytest.mark.parametrize("before", ["", "if (x) ", "return ", "x; ", "{ ", "#define LAUNCH(p, n) ", "#define LAUNCH "])
def test_an_expression_may_select_the_kernel_once_for_all_threads(before, kernel):
    text = rewrite(f"{before}{kernel}<<<1, 2>>>(x);")
    name = f"EMULATOR_TEXT({kernel})" if "#" in before else f'"{kernel}"'
    assert text.startswith(f'{before}::emulator::Configuration(1, 2)("(" {name} ")", [=, emulator_kernel = {kernel}]')
    assert "{ emulator_kernel(emulator_arguments...); }, x);" in text


@pytest.mark.parametrize(
    "before",
    ["if (x) ", "if constexpr (x) ", "for (;;) ", "while (f(x)) ", "else ", "(void)", "#define K(k) ", "#define K "],
)
def test_what_stands_before_a_bracketed_kernel_is_not_part_of_it(before):
    text = rewrite(f"{before}(*k)<<<1, 2>>>(x);")
    assert text.startswith(f"{before}::emulator::Configuration(1, 2)(") and "[=](" in text


@pytest.mark.parametrize(
    "text", ["k << <1, 2 >> >(x);", "k<<\n<1, 2>> > (x);", "k << < 1, 2 >>>(x);", "k<<<1, 2>> >(x);"]
)
def test_a_space_in_the_brackets_of_a_launch_is_allowed_where_nvcc_allows_it(text):
    assert launch(text) == ("k", "k", "1, 2", "x")


def test_a_launch_of_a_template_whose_argument_ends_in_angle_brackets_is_split_in_the_right_place():
    assert launch("k<f<g<1>>><<<1, 2>>>(x);") == ("k<f<g<1>>>", "k<f<g<1>>>", "1, 2", "x")


@pytest.mark.parametrize(
    "configuration",
    [
        "h<g<1>>(2), 3",
        "a[i >> 3], b",
        "(n + 31) / 32, f(x, g(y))",
        "grid, block, n << 2",
        "dim3((a > b) ? a : b), 1",
    ],
)
def test_a_configuration_may_hold_brackets_shifts_and_templates(configuration):
    assert launch(f"k<<<{configuration}>>>(x);")[2] == configuration


@pytest.mark.parametrize("arguments", ["f(a, (b)), c[g(1)]", "x >> 2, y << 3", "[&] { return 1; }()", "a > b, c < d"])
def test_arguments_may_hold_anything_balanced(arguments):
    assert launch(f"k<<<1, 2>>>({arguments});")[3] == arguments


def test_a_launch_without_arguments_passes_none():
    assert launch("k<<<1, 1>>>();")[3] == ""
    assert launch("k<<<1, 1>>>( );")[3] == ""


@pytest.mark.parametrize(
    ("arguments", "parameters", "passed", "own"),
    [
        ("x, NULL, n", "auto emulator_0, auto, auto emulator_2", "emulator_0, NULL, emulator_2", "x, NULL, n"),
        ("0, x", "auto, auto emulator_1", "0, emulator_1", "0, x"),
        ("f<1, 2>(x), 0L", "auto emulator_0, auto", "emulator_0, 0L", "f<1, 2>(x), 0L"),
        ("a < b, c > d, 0", "auto emulator_0, auto emulator_1, auto", "emulator_0, emulator_1, 0", "a < b, c > d, 0"),
        ("x << 1, 0L", "auto emulator_0, auto", "emulator_0, 0L", "x << 1, 0L"),
        ("{}, x", "auto, auto emulator_1", "{}, emulator_1", "nullptr, x"),
        ("x, {n, 2}", "auto emulator_0, auto", "emulator_0, {n, 2}", "x, nullptr"),
        ("x, 0.5f", "auto... emulator_arguments", "emulator_arguments...", "x, 0.5f"),
        ("0, x...", "auto... emulator_arguments", "emulator_arguments...", "0, x..."),
    ],
)
def test_null_pointers_and_initializers_reach_the_kernel_as_they_are_written(arguments, parameters, passed, own):
    text = " ".join(rewrite(f"k<<<1, 2>>>({arguments});").split())
    assert text == f'::emulator::Configuration(1, 2)("k", [=]({parameters}) {{ k({passed}); }}, {own});'


def test_a_launch_whose_only_argument_is_a_literal_passes_it():
    assert launch("k<<<1, 1>>>('x');")[3] == "'x'"


def test_spaces_and_comments_between_the_parts_are_no_matter():
    kernel, _, configuration, arguments = launch("k /* one */ <float> <<< /* grid */ 1, 2 >>> (x /* , */);")
    assert kernel.startswith("k ") and kernel.endswith("<float>")
    assert configuration.endswith("1, 2") and arguments.startswith("x")


def test_the_word_before_the_launch_is_not_part_of_the_kernel():
    assert " ".join(rewrite("if (x) return k<<<1, 2>>>(y);").split()).startswith("if (x) return ::emulator::")
    assert " ".join(rewrite("else k<<<1, 2>>>(y);").split()).startswith("else ::emulator::")


def test_a_statement_s_word_before_a_global_name_is_not_part_of_the_kernel():
    assert " ".join(rewrite("if (x) return ::k<<<1, 2>>>(y);").split()).startswith("if (x) return ::emulator::")


def test_a_condition_before_the_launch_is_not_part_of_the_kernel():
    text = " ".join(rewrite("if (n > 0) k<<<1, 2>>>(y);").split())
    assert text.startswith("if (n > 0) ::emulator::")


def test_every_launch_of_a_source_is_rewritten():
    text = rewrite("a<<<1, 2>>>(x); b<<<3, 4>>>(y);\nc<<<5, 6>>>(z);")
    assert "<<<" not in text
    assert text.index('"a"') < text.index('"b"') < text.index('"c"')


def test_a_launch_inside_a_lambda_is_rewritten():
    text = rewrite('AT_DISPATCH(x.type(), "f", ([&] {\n    k<scalar_t><<<1, 2>>>(x.data_ptr<scalar_t>());\n}));')
    assert "<<<" not in text and text.endswith("\n}));")
    assert "k<scalar_t>(emulator_arguments...)" in text


def test_a_launch_over_several_lines_keeps_every_argument_on_a_line_of_its_own():
    source = "k<float>\n    <<<dim3(1),\n       512>>>(\n    first,\n    second);\nafter();"
    before, after = source.split("\n"), rewrite(source).split("\n")
    assert len(after) == len(before)
    for word in ("dim3(1)", "512", "first", "second", "after();"):
        assert [word in line for line in after] == [word in line for line in before]


def test_a_comment_behind_the_kernel_s_name_does_not_swallow_the_call():
    text = rewrite("k  // why\n    <<<1, 2>>>(x);")
    assert "k(emulator_arguments...)" in code_only(text)


def test_a_kernel_s_name_over_several_lines_is_said_on_one():
    text = rewrite("k<int,\n  float><<<1, 2>>>(x);\nnext();")
    assert '"k<int, float>"' in text
    assert text.split("\n")[2] == "next();"


def test_a_launch_in_a_macro_stays_in_the_macro():
    source = "#define LAUNCH(k, n) \\\n    k<<<n, \\\n        2>>>( \\\n        x)\nLAUNCH(f, 1);\n"
    lines = rewrite(source).split("\n")
    assert len(lines) == len(source.split("\n"))
    assert all(line.endswith("\\") for line in lines[:3]) and lines[4] == "LAUNCH(f, 1);"
    assert "<<<" not in "".join(lines)


def test_a_launch_in_a_macro_with_its_kernel_on_a_line_before_stays_in_the_macro():
    source = "#define LAUNCH(k) \\\n    k<int, \\\n      float> \\\n    <<<1, 2>>> \\\n    (x)\nnext();"
    lines = rewrite(source).split("\n")
    assert len(lines) == 6 and lines[5] == "next();"
    assert all(line.endswith("\\") for line in lines[:4])
    assert "\\ float" not in lines[1], "a backslash inside the name"


@pytest.mark.parametrize(
    "source",
    [
        's = "k<<<1, 2>>>(x)";',
        "// k<<<1, 2>>>(x)",
        "/* k<<<1,\n2>>>(x) */",
        'R"(k<<<1, 2>>>(x))"',
        "c = '<'; d = 1 << 2;",
    ],
)
def test_what_only_looks_like_a_launch_stays(source):
    assert rewrite(source) == source


@pytest.mark.parametrize("source", ["a = b << c;", "x = y >> 2;", "std::cout << a << b;", "f<g<h<1>>> x;", "a <<= 2;"])
def test_shifts_and_nested_templates_stay(source):
    assert rewrite(source) == source


@pytest.mark.parametrize("character", ["'\"'", "'('", "'\\''", "1'000'000"])
def test_a_character_or_a_digit_separator_does_not_end_a_launch_early(character):
    assert launch(f"k<<<1, 2>>>({character}, x);")[3] == f"{character}, x"


@pytest.mark.parametrize(
    ("source", "line"),
    [("\nk<<<1, 2(x);", 2), ("k<<<1, 2>>>(x;", 1), ("\n\nk<<<1, 2>>>;", 3), ("k<<<1, 2>>>", 1),
     ("\nk<<<1, 2>>(x);\nj<<<1, 2>>>(y);", 2)],
)  # fmt: skip
def test_a_launch_that_is_not_balanced_is_refused_with_its_line(source, line):
    with pytest.raises(ValueError, match=f"line {line}: "):
        rewrite(source)


# ------------------------------------------------------------------------------ dynamic shared memory


@pytest.mark.parametrize(
    ("declaration", "pointer"),
    [
        ("extern __shared__ float s[];", "float *s = reinterpret_cast<float *>("),
        ("extern __shared__ unsigned char bytes[];", "unsigned char *bytes = reinterpret_cast<unsigned char *>("),
        ("__shared__ extern float s[];", "float *s = "),
        ("extern __shared__ __align__(16) float s[];", "float *s = "),
        ("extern __shared__ alignas(sizeof(float4)) float s[];", "float *s = "),
        ("extern __shared__ __builtin_align__(16) float s[];", "float *s = "),
        ("extern __shared__ float s[][33];", "float (*s)[33] = reinterpret_cast<float (*)[33]>("),
        ("extern  __shared__\tint\ts [ ] ;", "int *s = "),
        ("extern volatile __shared__ int s[];", "volatile int *s = "),
        ("extern __shared__ std::pair<int, float> s[];", "std::pair<int, float> *s = "),
    ],
)
def test_dynamic_shared_memory_becomes_a_pointer_to_the_block_s(declaration, pointer):
    text = rewrite(f"void f() {{ {declaration} }}")
    assert pointer in text
    assert "__shared__" not in text and text.count("extern") == 1  # for the compiler, which refuses another type


@pytest.mark.parametrize(
    "around", ["{}", "namespace of_mine {{\n{}\n}}", 'extern "C" {{ {} }}', "struct S {{ int x; }};\nvoid f() {{}}\n{}"]
)
def test_outside_of_functions_each_function_that_uses_the_name_gets_a_pointer(around):
    functions = "void k() { s[0][1] = 2; }\nvoid g(float* s) { s[0] = 1; }\nint none() { return 3; }"
    text = rewrite(around.format("extern __shared__ float s[][33];\n" + functions))
    pointer = "float (*s)[33] = reinterpret_cast<float (*)[33]>(::emulator::dynamic_shared);"
    assert f"void k() {{{pointer} {{ s[0][1] = 2; }}}}" in text and text.count(pointer) == 1
    assert "void g(float* s) { s[0] = 1; }\nint none() { return 3; }" in text and "extern __shared__" not in text


@pytest.mark.parametrize(
    ("macro", "use"),
    [
        ("SMEM extern __shared__", "SMEM float s[];"),
        ("SMEM __shared__", "extern SMEM float s[];"),
        ("SMEM extern \\\n __shared__ __align__(16) // bytes", "SMEM float s[];"),
        ("SMEM(n) extern __shared__ __align__(n)", "SMEM(sizeof(float4)) float s[];"),
        ("FLOATS extern __shared__ float", "FLOATS s[];"),
        ("DYNAMIC(T, name) extern __shared__ T name[]", "DYNAMIC(float, s);"),
        ("DYNAMIC(T, name) extern __shared__ T name[];", "DYNAMIC(float, s)"),
        ("DYNAMIC(T, name) extern __shared__ fl ## T name[]", "DYNAMIC(oat, s);"),
        ("DYNAMIC() extern __shared__ float s[]", "DYNAMIC();"),
    ],
)
def test_a_macro_that_declares_dynamic_shared_memory_is_expanded_where_it_is_used(macro, use):
    source = f"#define {macro}\nint x;\n#ifdef SMEM\n#endif\nvoid f() {{ {use} }}\n"
    body = "{extern float s[];}float *s = reinterpret_cast<float *>(::emulator::dynamic_shared);"
    assert rewrite(source).endswith(f"int x;\n#ifdef SMEM\n#endif\nvoid f() {{ {body} }}\n")


def test_a_macro_that_declares_dynamic_shared_memory_may_be_used_outside_of_functions():
    text = rewrite("#define DYNAMIC(name) extern __shared__ float name[]\nDYNAMIC(s);\nvoid f() { s[0] = 1; }")
    assert "\nextern float s[];\nvoid f() {float *s = " in text


def test_a_use_of_a_macro_over_several_lines_keeps_its_lines():
    text = rewrite("#define DYNAMIC(T, name) extern __shared__ T name[]\nvoid f() { DYNAMIC(float,\n s); }\nnext();")
    assert text.split("\n")[3] == "next();"


@pytest.mark.parametrize(("name", "printed"), [("s", "s"), ("NAME##_s", "NAME##_s"), ("a ## NAME##_s", "a##NAME##_s")])
def test_dynamic_shared_memory_of_a_kernel_in_a_macro_becomes_a_pointer(name, printed):
    text = rewrite(f"#define K(NAME) \\\nvoid NAME() {{ \\\n extern __shared__ float {name}[]; \\\n f(); }}\nK(a)\n")
    pointer = f"float *{printed} = reinterpret_cast<float *>(::emulator::dynamic_shared);"
    assert (
        text == f"#define K(NAME) \\\nvoid NAME() {{ \\\n {{extern float {printed}[];}}{pointer} \\\n f(); }}\nK(a)\n"
    )


def test_a_macro_with_two_definitions_is_not_expanded():
    source = "#ifdef A\n#define SMEM __shared__\n#else\n#define SMEM\n#endif\nvoid f() { SMEM float s[1]; }"
    assert rewrite(source) == source


def test_a_function_with_c_linkage_is_a_function():
    assert "float *s = " in rewrite('extern "C" __global__ void k() { extern __shared__ float s[]; }')


def test_a_declaration_over_several_lines_keeps_its_lines():
    text = rewrite("extern __shared__\n    float\n    s[];\nnext();")
    assert text.split("\n")[3] == "next();"


def test_static_shared_memory_is_left_to_the_headers():
    source = "__shared__ float s[32];"
    assert rewrite(source) == source


def test_an_alignment_comes_before_static_shared_memory_s_macro():
    assert rewrite("__shared__ alignas(16) float s[32];") == "alignas(16) __shared__ float s[32];"


def test_a_comment_in_a_declaration_of_dynamic_shared_memory_does_not_hide_it():
    text = rewrite("void f() { extern __shared__  // bytes: blockDim.x\n    float s[]; }")
    assert "float *s = " in code_only(text)


def test_an_extern_of_another_kind_stays():
    source = 'extern int x;\nextern "C" void f();\n__shared__ int y[4];'
    assert rewrite(source) == source


def test_a_comment_about_dynamic_shared_memory_stays():
    source = "// extern __shared__ float s[];"
    assert rewrite(source) == source


# -------------------------------------------------------------------------------------- launch bounds


@pytest.mark.parametrize(
    "head",
    [
        "__global__ void __launch_bounds__(64) k(int* n)",
        "__global__ __launch_bounds__(64) void k(int* n)",
        "__launch_bounds__(64) __global__ void k<float>(int n[3], float)",
        'extern "C" __global__ void __launch_bounds__(64) k()',
    ],
)
def test_a_kernel_checks_its_launch_bounds_first(head):
    assert rewrite(f"int a;\n{head} {{ f(); }}") == f"int a;\n{head} {{EMULATOR_LAUNCH_BOUNDS(64) f(); }}"


def test_launch_bounds_over_several_lines_are_checked_on_one():
    source = "__global__ void __launch_bounds__(A<1, 2>::n, // many\n 2) k() {\n}"
    assert rewrite(source) == source[:-2] + "EMULATOR_LAUNCH_BOUNDS(A<1, 2>::n, 2)\n}"


@pytest.mark.parametrize(
    "source",
    [
        "__global__ void __launch_bounds__(64) k(int* n);\nvoid f() {}",
        "#define KERNEL __global__ \\\n __launch_bounds__(64)\nKERNEL void k() {}",
        "__global__ void\n#if A\n__launch_bounds__(64)\n#else\n__launch_bounds__(96)\n#endif\nk() {}",
        "__global__ void __launch_bounds__(n) k(int n) {}",  # some other n
        "__global__ void __launch_bounds__() k() {}",
        "__device__ int __launch_bounds__(64) f() { return 1; }",
        # On a GPU, the block size is within the bounds.
        "__global__ void __launch_bounds__(64) k() {}\nvoid f() { cudaOccupancyMaxPotentialBlockSize(&g, &b, k); }",
    ],
)
def test_uncertain_launch_bounds_are_not_checked(source):
    assert rewrite(source) == source


# ------------------------------------------------------------------------------- what cannot be run


PTX = '[&]() { EMULATOR_LACK("the inline PTX tcgen05.wait::ld.sync.aligned"); }()'


@pytest.mark.parametrize(
    ("construct", "marked"),
    [
        ('asm("tcgen05.wait::ld.sync.aligned;");', f"{PTX};"),
        ('asm volatile ("tcgen05.wait::ld.sync.aligned;\\n" ::: "memory");', f"{PTX};"),
        ('__asm__ __volatile__("bar.sync 0; " "tcgen05.wait::ld.sync.aligned;");', f"{PTX};"),
        ("#include <cufft.h>", '#pragma message "emulator_leaves_out cufft.h"'),
        ('#include "cudnn.h"', '#pragma message "emulator_leaves_out cudnn.h"'),
        (
            "  #  include <cub/device/device_copy.cuh>  // copies",
            '  #pragma message "emulator_leaves_out cub/device/device_copy.cuh"  // copies',
        ),
        ("#include <cute/tensor.hpp>", '#pragma message "emulator_leaves_out cute/tensor.hpp"'),
    ],
)
def test_a_construct_that_only_a_gpu_can_run_is_marked_at_its_line(construct, marked):
    assert rewrite(f"int a;\n\n{construct}\nint b;") == f"int a;\n\n{marked}\nint b;"


@pytest.mark.parametrize(
    "statement",
    [
        '"bar.red.popc.u32 %0, 1, p;"',  # a barrier for a part of the block
        '"LOOP: add.u32 %0, %0, 1; bra LOOP, more;" : "+r"(x)',
        '"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0}, {%1}, {%1}, {%0};" : "+f"(d) : "r"(a)',
        '"mbarrier.arrive.noComplete.shared.b64 _, [%0], 1;" :: "r"(bar)',
        '"add.rn.f32 %0, %1, %2" ";" SUFFIX : "=f"(x) : "f"(y), "f"(z)',
        '"mov.u32 %0, %%envreg3;" : "=r"(x)',
    ],
)
def test_ptx_without_a_translation_is_never_translated_in_part(statement):
    text = rewrite(f"asm volatile({statement});")
    assert re.match(r"\[&\]\((auto&&...)?\) { EMULATOR_LACK", text) and "emulator::ptx" not in text
    assert text.count('EMULATOR_LACK("the inline PTX ') == 1


def test_the_operands_of_ptx_without_a_translation_stay_for_the_compiler():
    text = rewrite('asm("wgmma.fence %0, %1;" : "+f"(sums[0]) : "l"(desc + 1));')
    assert text.startswith('[&](auto&&...) { EMULATOR_LACK("') and text.endswith("}((sums[0]), (desc + 1));")


@pytest.mark.parametrize("statement", ['"" ::: "memory"', '"// nothing\\n" ::', '"membar.cta;" ::: "memory"'])
def test_ptx_with_a_translation_needs_no_report(statement):
    assert "EMULATOR_LACK" not in rewrite(f"asm volatile({statement});")


def test_an_asm_over_several_lines_keeps_its_lines():
    assert rewrite('asm(\n"bar.sync 0;"\n);\nint b;').split("\n")[3] == "int b;"


@pytest.mark.parametrize(
    "source",
    [
        '// asm("x") would be faster\n',
        '/*\n#include <cudnn.h>\n asm volatile("x");\n*/',
        'const char* s = "asm(1)";',
        "int asm_count(int); int y = asm_count(3);",
        "#include <cuda_runtime.h>\n#include <cublas_v2.h>",
        "// #include <cute/tensor.hpp>",
        "#include <mma.h>\n#include <cuda_fp16.h>\n#include <cub/cub.cuh>\n#include <cooperative_groups/reduce.h>",
        "struct plasm { int x; };",
    ],
)
def test_a_mention_is_not_a_use(source):
    assert rewrite(source) == source


ASSERTED = "cuda.cu:7:15: error: static assertion failed: emulator_unsupported: the inline PTX wgmma\n"
CUDNN = "cuda.cu:2:17: note: '#pragma message: emulator_leaves_out cudnn.h'\n"
UNKNOWN = "cuda.cu:9:3: error: 'unknown' was not declared in this scope\n"


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (ASSERTED, ("cuda.cu:7", "the inline PTX wgmma")),
        (CUDNN + "cuda.cu:5:3: error: 'cudnnHandle_t' was not declared in this scope\n",
         ("cuda.cu:5", "cudnnHandle_t of the header cudnn.h")),
        (CUDNN + "cuda.cu:5:3: error: 'cublasHandle' was not declared in this scope\n", None),
        (CUDNN.replace("cudnn.h", "cute/tensor.hpp") + "cuda.cu:5:17: error: 'cute' is not a namespace-name\n",
         ("cuda.cu:5", "cute of the header cute/tensor.hpp")),
        ("/own/tiles.cuh:2:10: fatal error: cute/tensor.hpp: No such file or directory\n",
         ("/own/tiles.cuh:2", "the header cute/tensor.hpp")),
        ("cuda.cu:2:10: fatal error: forgotten.h: No such file or directory\n", None),
        ("cuda.cu:9:3: error: 'cudaGraphAddNode' was not declared in this scope\n", ("cuda.cu:9", "cudaGraphAddNode")),
        (ASSERTED + UNKNOWN, ("cuda.cu:7", "the inline PTX wgmma")),
        (UNKNOWN + ASSERTED, None),
    ],
)  # fmt: skip
def test_the_first_error_in_a_log_tells_what_the_emulation_lacks(log, found):
    assert find_in_log(log) == found


FUNCTIONS = """namespace inner {
struct Tile {
  int rows() { return 2; }
  template <class T> int lacking() {
    return unknown_of_cuda();
  }
};
}
template <class T> __global__ void k(T* x) { *x = 1; }
int table[] = {1, 2};
"""


def test_a_function_with_what_the_emulation_lacks_gets_a_body_that_reports_it():
    text = without_bodies(FUNCTIONS, {5: "unknown_of_cuda"})
    assert text == FUNCTIONS.replace("{\n    return unknown_of_cuda();\n  }", '{\nEMULATOR_LACK("unknown_of_cuda");\n}')


@pytest.mark.parametrize("line", [1, 2, 8, 10])
def test_what_is_in_no_function_cannot_be_reported_when_it_runs(line):
    assert without_bodies(FUNCTIONS, {line: "unknown_of_cuda"}) is None


TORCH = "/site-packages/torch/include"
LOOPS = f"""In file included from {TORCH}/ATen/native/cuda/Loops.cuh:80,
                 from cuda.cu:8:
{TORCH}/ATen/native/cuda/CUDALoops.cuh:344:13: error: expected primary-expression before '<' token
"""


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (LOOPS, ("cuda.cu:8", "the header ATen/native/cuda/CUDALoops.cuh")),
        (LOOPS.replace("ATen/native/cuda/CUDALoops.cuh", "ATen/core/Tensor.h"), None),
        (UNKNOWN + LOOPS, None),
    ],
)
def test_the_first_error_in_a_log_may_be_in_cuda_code_of_torch(log, found):
    assert find_in_torch_headers(log) == found


# ----------------------------------------------------------------------------------------- properties


PIECES = st.sampled_from(
    ["k<<<1, 2>>>(x);", "k<T, 4><<<g,\n b>>>(\nx);", "extern __shared__ float\n s[];", "// <<<\n", '"<<<"', "/* \n */",
     "{", "}", "\n", "x = a << b;", "f<g<1>> y;", "'\\n'", "#define M \\\n k<<<1, 2>>>(x)\n", "int z;",
     "static __shared__", "__shared__\n alignas(16)",
     "cudaFuncSetAttribute((void*)k,", "(const void*)\n k, 1)", "__global__ void __launch_bounds__(\n1)\n k()"]
)  # fmt: skip
# No '<<<', no 'extern' and no quote: nothing that starts a launch, a declaration or a literal.
PLAIN = st.text(alphabet="abk12 \n\t(){}[];,.:=+-*<>&", max_size=80).filter(lambda text: not re.search(r"<<\s*<", text))


@given(st.lists(PIECES, max_size=12).map(" ".join))
def test_rewriting_never_changes_the_number_of_lines(source):
    assert rewrite(source).count("\n") == source.count("\n")


@given(PLAIN)
def test_text_without_cuda_s_syntax_is_unchanged(source):
    assert rewrite(source) == source


@given(st.lists(PIECES, max_size=12).map(" ".join))
def test_no_launch_is_left_in_the_code(source):
    assert "<<<" not in code_only(rewrite(source))


@given(st.text(alphabet="ak12<>(){}, \n\\\"'/*;_:", max_size=60))
def test_nothing_but_an_imbalance_is_ever_raised(source):
    try:
        out = rewrite(source)
    except ValueError as error:
        assert re.match(r"line \d+: ", str(error))
    else:
        assert out.count("\n") == source.count("\n")


# ------------------------------------------------------------------------------------------- steps of a warp

STEPS = {
    "__global__ void k(volatile int* v) { v[0] += v[1]; }": 3,
    "__global__ void k(volatile int* v, int* w) { v[0] = w[1]; w[0] += v[1]; if (v[0] == v[1]) w[0] = 1; }": 0,
    "__device__ void f() { __shared__ volatile T<int> v[64]; if (a) v[a] = b = c + v[a + 1]; else v[1] = v[2]; }": 6,
    "__global__ void f(volatile int* v) { v[0] = 1; } __global__ void g(int* v) { v[0] = v[1]; }": 0,
    "void f(volatile int* v) { v[0] = v[1]; }": 0,
    "__host__ __device__ void f(volatile int* v) { v[0] = v[1]; }": 0,
    "__global__ void k(volatile int* v) {\n#define ADD v[0] += v[1];\nADD }": 0,
}


@pytest.mark.parametrize("source", STEPS)
def test_lanes_take_the_steps_of_a_sum_in_volatile_memory_together(source):
    assert len(re.findall(r"emulator::step\(", rewrite(source))) == STEPS[source]


SHARED = "__global__ void k() { __shared__ float s[64], t[2]; int i = threadIdx.x; "
READS = {
    "__syncthreads(); float m = s[0]; s[i] = 1; }": 1,
    "for (;;) { __syncthreads(); } const float m = s[0] / 2; s[i] += m; m = s[1]; s[2] = 1; }": 2,
    "float m = s[0]; __syncthreads(); s[i] = 1; }": 0,
    "float m = s[0]; t[i] = 1; }": 0,
    "float m; if (i) m = s[0]; else m = 1; s[i] = m; }": 0,
    "float m = s[i]; s[i] = 1; }": 0,
    "float m; do m = s[0]; while (m); s[i] = m; }": 0,
    "s[0] = s[1]; s[i] == 1; }": 0,
}


@pytest.mark.parametrize("body", READS)
def test_lanes_read_an_element_together_before_one_overwrites_it(body):
    assert len(re.findall(r"emulator::step\(", rewrite(SHARED + body))) == READS[body]


def test_a_read_and_the_updates_behind_it_have_steps_of_their_own():
    reads = "float m = s[0]; m += s[1]; m = s[1]; m = s[2]; s[i] = m;"
    text = rewrite(f"{SHARED}volatile float* v = t; {reads} v[0] = v[1]; }}")
    steps = re.findall(r"emulator::step\((\d+)\)", text)
    assert len(steps) == len(set(steps)) == 3 + 3


def test_dynamic_shared_memory_may_be_one_variable():
    text = rewrite("__global__ void k() {\n  extern __shared__ Buffers<A, 2> all;\n}\n")
    assert "Buffers<A, 2> &all = reinterpret_cast<Buffers<A, 2> &>(*::emulator::dynamic_shared);" in text


def test_a_pragma_in_a_macro_is_dropped_and_another_stays():
    source = "#pragma once\n#define UNROLL #pragma unroll 4\n#pragma unroll\nfor (;;) {}\n"
    assert rewrite(source) == source.replace("#pragma unroll 4", "")


@pytest.mark.parametrize("head", ["__launch_bounds__(N) void", "void __launch_bounds__(N)", "__cluster_dims__(2) void"])
def test_a_kernel_with_an_attribute_is_known_by_its_name(head):
    text = rewrite(f"__global__ static {head} first(int* p);\nvoid* address = (void*)first;\n")
    assert 'known("first", first)' in text


@pytest.mark.parametrize(
    ("statement", "does"),
    [
        ("AGAIN_%=: bra AGAIN_%=;", "ptx_AGAIN__:; goto ptx_AGAIN__;"),
        ("{.reg .pred p; @p bra.uni OUT; OUT:}", "{ bool ptx_p{}; if (ptx_p) { goto ptx_OUT; } ptx_OUT:; }"),
    ],
)
def test_labels_of_ptx_are_those_of_the_statement(statement, does):
    assert does in rewrite(f'asm volatile("{statement}");')


def test_a_kernel_with_clusters_asks_for_them_first():
    text = rewrite("__global__ void __cluster_dims__(SIZE, 1, 1) k(int* p) { *p = 1; }")
    assert "k(int* p) {EMULATOR_CLUSTER(SIZE, 1, 1) *p = 1; }" in text


@pytest.mark.parametrize("call", ["a.f<T, 2>()", "a->f<N::T*>(x)", "a[0].f<B<T>>()"])
def test_a_call_of_a_member_template_says_that_it_is_one(call):
    assert rewrite(call) == re.sub(r"(\.|->)f<", r"\1template f<", call)


def test_a_call_of_a_member_template_of_a_parameter_says_that_it_is_one():
    before = "template <typename A, class B = int> int g() "
    assert rewrite(before + "{ return A::f<3>(x) + B::f<A>() + n::f<3>(x); }") == (
        before + "{ return A::template f<3>(x) + B::template f<A>() + n::f<3>(x); }"
    )


@pytest.mark.parametrize(
    "text", ["if (a.x < b.x && c > (d)) {}", "e = a.x < b ? c > (d) : e;", "a.template f<T>();", "if (a.x < b) (c);"]
)
def test_comparisons_and_named_templates_stay_as_they_are(text):
    assert rewrite(text) == text


def test_a_type_of_the_source_in_a_size_is_named_as_one():
    before = "struct L { using tile = float[4]; static int count; }; "
    assert rewrite(before + "sizeof(L::tile) + sizeof(L::count)") == (
        before + "sizeof(typename L::tile) + sizeof(L::count)"
    )


def test_a_kernel_of_a_header_is_known_by_its_template_arguments():
    assert 'p = (void*)::emulator::known("", n::k<A, B>);' in rewrite("void* p = (void*)n::k<A, B>;")
    assert rewrite("f((void*)a, b < c, d > e);") == "f((void*)a, b < c, d > e);"


def test_each_branch_within_the_text_of_asm_is_translated_and_later_lines_keep_their_numbers():
    lines = ["#line 7", "__device__ int f(int x) {", "int y;", 'asm("mov.b32 %0, "', "#ifdef TWICE", '"2;"', "#else",
             '"1;"', "#endif", ': "=r"(y));', "return y;", "}"]  # fmt: skip
    found = rewrite("\n".join(lines)).splitlines()

    start, end = found.index("#ifdef TWICE"), found.index("#endif")
    branches = "\n".join(found[start:end]).split("#else")
    assert ["2" in branches[0], "1" in branches[1]] == [True, True] and "asm" not in "".join(branches)
    numbered = max(i for i, line in enumerate(found) if line.startswith("#line"))
    assert found[numbered] == "#line 15" and found[numbered + 2] == "return y;"  # the line 16 of the source
