"""What nvcc 13.0 refuses is refused without it, and what it accepts is not. Each source was tried with nvcc 13.0."""

from __future__ import annotations

import pytest

from cuda_on_cpu.compile.hints import hint
from cuda_on_cpu.emulator import constant_memory_limit
from cuda_on_cpu.emulator.rewrite import rewrite

HOST = "calling a __host__ function"
ATTRIBUTE = "attribute does not apply to any entity"
CONSTANT = "expression must have a constant value"
LAMBDA = "annotation on lambda requires"
REFUSED = {
    "float h(float a) { return a; }\n__global__ void k(float* x) { *x = h(*x); }": HOST,
    "static inline float h(float a) { return a; }\n__device__ float g(float a) { return h(a); }": HOST,
    "template <class T> T h(T a) { return a; }\n__device__ float g(float a) { return h(a); }": HOST,
    "float h(float a) { return a; }\ntemplate <class T> __global__ void k(T* x) { *x = h(*x); }\n"
    "void f() { k<<<1, 1>>>((float*)0); }": HOST,
    "#define KERNEL __global__ void\nfloat h(float a) { return a; }\nKERNEL k(float* x) { *x = h(*x); }": HOST,
    "__launch_bounds__(256) __global__ void k(float* x) { *x = rand(); }": HOST,
    "__global__ void k(float* x) { exit(1); }": HOST,
    "__global__ void k(float* x) { std::map<int, int> m; *x = m.size(); }": HOST,
    "__global__ void k(float* x) { std::mt19937 g(1); *x = g(); }": HOST,
    "__global__ void k(float* x) { std::cout << 1; }": HOST,
    "__global__ void k(float* x) { cudaDeviceSynchronize(); }": HOST,
    "__global__ void k(float* x) { cudaMemset(x, 0, 4); }": HOST,
    "__global__ void k(float* x) { cudaGraph_t g; cudaGraphCreate(&g, 0); }": HOST,
    "__global__ void k(float* x) { throw 1; }": "exception handling",
    "__device__ float g(float a) { auto f = [=] __device__ (float v) { return v + a; }; return f(a); }": LAMBDA,
    "void h() { auto f = [] __host__ __device__ (float v) { return v; }; f(1); }": LAMBDA,
    "void h() { each<<<1, 1>>>([=] __device__(float v) { return v; }); }": LAMBDA,
    "__global__ void k(float* x) { extern __shared__ alignas(16) float s[]; *x = s[0]; }": ATTRIBUTE,
    "__global__ void k(float* x) { static __shared__ alignas(16) float s[4]; *x = s[0]; }": ATTRIBUTE,
    "__shared__ extern alignas(16) float s[];": ATTRIBUTE,
    "int h(int n) { return (n + 31) / warpSize; }": "host code cannot use warpSize",
    "__global__ void k() { int i = 2 * warpSize; }\nint h(int n) { return min(n, warpSize); }": "cannot use warpSize",
    "__global__ void k() { static_assert(64 % warpSize == 0); }": CONSTANT,
    "template <int N> __global__ void k() { constexpr int W = N / warpSize; }": CONSTANT,
    "__global__ void k(float* x) { __shared__ float s[256 / warpSize]; *x = s[0]; }": CONSTANT,
    "__global__ void k(float* x) { __shared__ float s[warpSize]; *x = s[0]; }": CONSTANT,
    "static int h(int n) { return n + threadIdx.x; }\nint g() { return h(1); }": "host code cannot use threadIdx",
    "void h(int n) { k<<<n + blockDim.x, 1>>>(); }": "host code cannot use blockDim",
    "float h() { const alignas(8) int y = 1; return y; }": ATTRIBUTE,
}
ACCEPTED = [
    "float h(float a) { return a; }\ntemplate <class T> __global__ void k(T* x) { *x = h(*x); }",  # never compiled
    "float h(float a) { return a; }\n__host__ __device__ float g(float a) { return h(a); }",  # a warning
    "constexpr float h(float a) { return a; }\n__global__ void k(float* x) { *x = h(*x); }",
    "__device__ float h(float);\nfloat h(float a) { return a; }\n__global__ void k(float* x) { *x = h(*x); }",
    "#define DEV __device__ inline\nDEV float h(float a) { return a; }\n__global__ void k(float* x) { *x = h(*x); }",
    "C10_HOST_DEVICE float h(float a) { return a; }\n__global__ void k(float* x) { *x = h(*x); }",
    "float h(float a) { return a; }\n__device__ float h(int a) { return a; }\n__global__ void k(float* x) { h(1); }",
    "#define HD __host__ __device__\nfloat h(float a) { return a; }\nHD float g(float a) { return h(a); }",
    "float h(float a) { return a; }\n__global__ void k(float* x) { auto h = [](float v) { return v; }; *x = h(*x); }",
    "struct S { float v; __device__ float h() { return v; } };\nfloat h() { return 1; }\n"
    "__global__ void k(S s, float* x) { *x = s.h(); }",
    "float h(float a) { return rand(); }\n__global__ void k(float* x) { *x = 1; }",
    "__device__ int rand() { return 4; }\n__global__ void k(float* x) { *x = rand(); }",
    "__global__ void k(float* x) { *x = std::max(x[0], x[1]); std::swap(x[0], x[1]); }",
    "int set(int a) { return a; }\n__global__ void k(float* x, int map) { int list = map; *x = list; }",
    "void h() { auto f = [](float v) { return v; }; f(1); }",
    "__global__ void k(float* x) { __shared__ alignas(16) float s[4]; *x = s[0]; }",
    "__global__ void k(float* x) { alignas(16) extern __shared__ float s[]; *x = s[0]; }",
    "__global__ void k(float* x) { extern __shared__ float alignas(16) s[]; *x = s[0]; }",
    "__global__ void k(float* x) { extern __shared__ __align__(16) float s[]; *x = s[0]; }",
    "__device__ int table[3]; __global__ void k(float* x) { *x = table[0]; }",
    "static int h(int n) { return n / warpSize; }\n__global__ void k(float* x) { *x = warpSize; }",  # h is left out
    "int h(cudaDeviceProp* p) { return p->warpSize; }\nint g(int warpSize) { int blockDim = 2; return blockDim; }",
    "void h() { dim3 blockDim(16), gridDim(4); k<<<gridDim, blockDim>>>(); }",
    "struct L { dim3 gridDim, blockDim; void go(); };\nvoid L::go() { k<<<gridDim, blockDim>>>(); }",
    "struct S { int lane() const; };\nint S::lane() const { return threadIdx.x; }",
    "namespace c { const dim3 blockDim{16, 16}; void go() { k<<<1, blockDim>>>(); } }",
    "#define warpSize 32\nint h(int n) { return n / warpSize; }",
    "void h() { auto [gridDim, blockDim] = f(); k<<<gridDim, blockDim>>>(); }",
    "void h() { gpu_kernel(it, [=] GPU_LAMBDA(float x) { return x * warpSize; }); }",
    "int h(int n) {\n#ifdef __CUDA_ARCH__\n    return threadIdx.x;\n#endif\n    return n; }",
    "namespace { int h(int n) { return n / warpSize; } }",
    "#define INLINE static inline\nINLINE int h(int n) { return n + sizeof(threadIdx); }",
    "constexpr int h(int n) { return n / warpSize; }\n__global__ void k(int* x) { int n = *x / warpSize; *x = n; }",
    "__global__ void k(int* x) { const int n = x[warpSize]; x[n * warpSize] = n; }",
    "__global__ void k(int* x) { __shared__ int s[4]; s[0] = warpSize; const int w = warpSize; *x = s[0] + w; }",
    "__device__ int d() { return warpSize + threadIdx.x; }\n__host__ __device__ int g() { return blockDim.x; }",
]


@pytest.mark.parametrize("source", REFUSED)
def test_what_nvcc_refuses_becomes_an_error_at_its_line(source):
    text = rewrite(source)
    assert text.count('_Pragma("GCC error') == 1
    line = next(line for line in text.split("\n") if "_Pragma" in line)
    assert REFUSED[source] in line
    assert text.count("\n") == source.count("\n")


@pytest.mark.parametrize("source", ACCEPTED)
def test_what_nvcc_accepts_stays(source):
    assert "_Pragma" not in rewrite(source)


@pytest.mark.parametrize("flag", ["--extended-lambda", "-expt-extended-lambda"])
def test_a_flag_of_nvcc_allows_lambdas_with_qualifiers(flag):
    source = "void h() { auto f = [] __device__ (float v) { return v; }; }"
    assert "_Pragma" in rewrite(source, ["-O3"]) and "_Pragma" not in rewrite(source, ["-O3", flag])


def test_the_array_of_dynamic_shared_memory_keeps_its_type_for_the_compiler():
    text = rewrite("template <class T> __global__ void k() { extern __shared__ __align__(16) volatile T s[][8]; }")
    assert "{extern volatile T s[][8];}" in text


@pytest.mark.parametrize(
    ("declaration", "names"),
    [
        ("__constant__ float c[20000];", {"c": 1}),
        ("\nnamespace n { static __constant__ int a[3] = {1}, b; }", {"a": 2}),
        ("__constant__ __align__(16) float4 c[2], d[3];", {"c": 1, "d": 1}),
        ("__constant__ float scale = 2;", {"scale": 1}),
        ("__device__ float c[3];", {}),
    ],
)
def test_variables_in_constant_memory_are_found(declaration, names):
    assert constant_memory_limit.declared(declaration) == names


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("'__shfl_xor' was not declared in this scope; did you mean '__shfl_xor_sync'?", "__shfl_xor_sync"),
        ("'__ballot' was not declared in this scope", "__ballot_sync"),
        ("conflicting declaration 'double s []'", "cast it"),
        ("no match for 'operator+' (operand types are 'const half' and 'const half')", "-U__CUDA_NO_HALF_OPERATORS__"),
        ("no matching function for call to '__half::__half(float)'", "__float2half"),
        ("cannot convert '__half' to 'float' in assignment", "-U__CUDA_NO_HALF_CONVERSIONS__"),
        ("no match for 'operator+' (operand types are 'Tile' and 'Tile')", None),
        ("'struct cudaDeviceProp' has no member named 'clockRate'", "cudaDevAttrClockRate"),
    ],
)
def test_a_hint_says_what_cuda_has_instead(error, says):
    found = hint(error)
    assert (says in found.text) if says else found is None or "HALF" not in found.text
