// CUDA's language as kernels use it: qualifiers, shared memory, and every syntax of a launch.
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

#include <tuple>
#include <vector>

namespace parts {

constexpr int kThreads = 32;
__constant__ int offsets[3] = {10, 20, 30};

struct Parameters {
    int add, times[2];
};

template <typename T>
struct Square {
    static __device__ __forceinline__ T of(T x) { return x * x; }
};

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

enum class Mode { kAdd, kMultiply };

template <typename T, Mode mode = Mode::kAdd, bool kNegate = false>
__global__ void __launch_bounds__(kThreads, 2) apply(const T* __restrict__ x, T* __restrict__ y, const Parameters p, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T value;
    if constexpr (mode == Mode::kAdd) value = x[i] + static_cast<T>(p.add);
    else value = x[i] * static_cast<T>(p.times[1]);
    y[i] = kNegate ? -value : value;
}

}  // namespace parts

// Two arrays of dynamic shared memory with different names are the same memory. Another kernel's has another type.
template <typename T>
__global__ void two_names(T* out) {
    extern __shared__ __align__(sizeof(double)) unsigned char raw[];
    extern __shared__ int words[];
    T* mine = reinterpret_cast<T*>(raw);
    mine[threadIdx.x] = static_cast<T>(threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = mine[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) words[0] = 77;
    __syncthreads();
    if (threadIdx.x == 1) out[0] = static_cast<T>(*reinterpret_cast<int*>(raw));
}

template <class T>
static torch::Tensor names_of(int64_t n) {
    auto out = torch::empty({n}, torch::dtype(c10::CppTypeToScalarType<T>::value).device(torch::kCUDA));
    two_names<T><<<1, n, n * sizeof(T)>>>(out.template data_ptr<T>());
    return out;
}
std::vector<torch::Tensor> dynamic_of_many_types(int64_t n) { return {names_of<float>(n), names_of<double>(n), names_of<int64_t>(n)}; }

// Several static arrays, of several dimensions and types, beside dynamic memory.
__global__ void static_and_dynamic(float* out) {
    __shared__ float grid[4][8];
    __shared__ int2 pairs[32];
    static __shared__ unsigned char flags[32];
    __shared__ alignas(16) double wide[2];
    extern __shared__ float extra[];
    const int i = threadIdx.x;
    grid[i / 8][i % 8] = i;
    pairs[i] = make_int2(i, -i);
    flags[i] = i % 2;
    extra[i] = 0.5f;
    if (i < 2) wide[i] = 100.0 * i;
    __syncthreads();
    out[i] = grid[3 - i / 8][7 - i % 8] + pairs[31 - i].y + flags[i] + extra[(i + 1) % 32] + static_cast<float>(wide[1]);
}
torch::Tensor shared_of_every_kind() {
    auto out = torch::empty({32}, torch::device(torch::kCUDA));
    static_and_dynamic<<<1, 32, 32 * sizeof(float)>>>(out.data_ptr<float>());
    return out;
}

#define LAUNCH(kernel, n, ...)                                                    \
    do {                                                                          \
        kernel<<<parts::ceil_div(n, parts::kThreads), parts::kThreads>>>(__VA_ARGS__); \
        C10_CUDA_KERNEL_LAUNCH_CHECK();                                           \
    } while (0)

using Kernel = void (*)(const float*, float*, const parts::Parameters, int);
struct Choice {
    Kernel kernel, others[2];
    int asked;
    Kernel next() { return others[asked++]; }
};
const Kernel table[] = {nullptr, parts::apply<float>};
static Kernel choose(int i) { return table[i]; }

torch::Tensor launches(torch::Tensor x, int64_t how) {
    auto y = torch::zeros_like(x);
    const int n = x.numel();
    const parts::Parameters p{3, {0, 4}};
    const dim3 grid(parts::ceil_div(n, parts::kThreads)), block = parts::kThreads;
    cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    auto inside = [&](auto* in, auto* out) { parts::apply<<<grid, block, 0, stream>>>(in, out, p, n); };
    if (how == 0) parts::apply<float><<<grid, block>>>(x.data_ptr<float>(), y.data_ptr<float>(), p, n);
    if (how == 1) parts::apply<float><<<grid, block, 0>>>(x.data_ptr<float>(), y.data_ptr<float>(), p, n);
    if (how == 2) inside(x.data_ptr<float>(), y.data_ptr<float>());
    if (how == 3) LAUNCH((parts::apply<float, parts::Mode::kMultiply>), n, x.data_ptr<float>(), y.data_ptr<float>(), p, n);
    if (how == 4)
        AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "apply", ([&] {
            parts::apply<scalar_t, parts::Mode::kMultiply, true>
                <<<grid, block, 0, stream>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), p, n);
        }));
    if (how == 5) {
        void (*chosen)(const float*, float*, const parts::Parameters, int) = n > 3 ? parts::apply<float> : parts::apply<float, parts::Mode::kMultiply>;
        chosen<<<grid, block, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), p, n);
    }
    if (how == 6)
        for (int part = 0; part < 2; ++part)
            parts::apply<float><<<{1, 1, 1}, {32, 1, 1}>>>(x.data_ptr<float>() + part * n / 2, y.data_ptr<float>() + part * n / 2, p, n / 2);
    Choice choice{table[1], {table[1], nullptr}, 0}, *chosen = &choice;
    if (how == 7) table[1]<<<grid, block>>>(x.data_ptr<float>(), y.data_ptr<float>(), p, n);
    if (how == 8) choose(1)<<<grid, block>>>(x.data_ptr<float>(), y.data_ptr<float>(), {3, {5, 4}}, n);
    if (how == 9) chosen->others[0]<<<grid, block>>>(x.data_ptr<float>(), y.data_ptr<float>(), p, n);
    if (how == 10) choice.next()<<<grid, block>>>(x.data_ptr<float>(), y.data_ptr<float>(), p, n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

__global__ void functions(int* out) {
    using Q = parts::Square<int>;
    auto twice = [] __device__(int x) { return 2 * x; };
    out[threadIdx.x] = parts::offsets[threadIdx.x] + Q::of(3) + twice(parts::fibonacci(10)) + warpSize;
}
torch::Tensor device_functions() {
    auto out = torch::empty({3}, torch::dtype(torch::kInt).device(torch::kCUDA));
    functions<<<1, 3>>>(out.data_ptr<int>());
    return out;
}

// Threads beyond the data return before the barriers that the other threads reach.
__global__ void early_leavers(const float* x, float* out, int n) {
    __shared__ float buffer[128];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    buffer[threadIdx.x] = x[i];
    __syncthreads();
    const int last = min(static_cast<int>(blockDim.x), n - static_cast<int>(blockIdx.x * blockDim.x)) - 1;
    out[i] = buffer[last - threadIdx.x];
}
torch::Tensor reversed_in_blocks(torch::Tensor x) {
    auto out = torch::empty_like(x);
    early_leavers<<<parts::ceil_div(x.numel(), 128), 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}

// Arguments convert to the types of the kernel's parameters.
struct Scale {
    float by;
};
struct NamedScale : Scale {
    int name;
};
template <class T>
__global__ void scaled(const T* x, const float* bias, T* y, Scale scale, float add, const parts::Parameters p, long count) {
    if (threadIdx.x < count) y[threadIdx.x] = x[threadIdx.x] * scale.by + add / 2 + p.add + p.times[1] + (bias ? bias[0] : 0);
}
torch::Tensor converted(torch::Tensor x, int64_t how) {
    auto y = torch::zeros_like(x);
    const float *in = x.data_ptr<float>(), two = 2;
    float* out = y.data_ptr<float>();
    const NamedScale named{{3}, 7};
    if (how == 0) scaled<<<1, 32>>>(in, NULL, out, named, 1, {}, x.numel());
    if (how == 1) scaled<float><<<1, 32>>>(in, 0, out, {two}, true, {1, {2, 3}}, int(x.numel()));
    if (how == 2) scaled<<<1, 32>>>(in, nullptr, out, Scale{3}, 0.5, {.add = 4}, 'A');
    if (how == 3) scaled<<<1, 32>>>(in, in, out, named, 0, parts::Parameters(), 32u);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
