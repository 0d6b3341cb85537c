// Kernels whose results show the effect of a barrier, a warp operation, shared memory or a launch.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <torch/extension.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

static torch::Tensor integers(std::vector<int64_t> sizes) {
    return torch::full(sizes, -1, torch::TensorOptions().device(torch::kCUDA).dtype(torch::kInt));
}

// ---------------------------------------------------------------------------------------------- barriers

static __global__ void tree_sum_kernel(const int* x, int* out) {
    __shared__ int partial[1024];
    const unsigned i = threadIdx.x;
    partial[i] = x[blockIdx.x * blockDim.x + i];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (i < half) partial[i] += partial[i + half];
        __syncthreads();
    }
    if (i == 0) out[blockIdx.x] = partial[0];
}

torch::Tensor tree_sum(torch::Tensor x) {
    auto out = integers({x.size(0)});
    tree_sum_kernel<<<x.size(0), x.size(1)>>>(x.data_ptr<int>(), out.data_ptr<int>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// Every thread passes its value to its neighbour, `steps` times.
static __global__ void ping_pong_kernel(int* out, int steps) {
    __shared__ int buffers[2][256];
    const int i = threadIdx.x, n = blockDim.x;
    buffers[0][i] = i;
    for (int step = 0; step < steps; ++step) {
        __syncthreads();
        buffers[(step + 1) % 2][(i + 1) % n] = buffers[step % 2][i];
    }
    __syncthreads();
    out[blockIdx.x * n + i] = buffers[steps % 2][i];
}

torch::Tensor ping_pong(int64_t blocks, int64_t threads, int64_t steps) {
    auto out = integers({blocks, threads});
    ping_pong_kernel<<<blocks, threads>>>(out.data_ptr<int>(), steps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

static __global__ void votes_kernel(const int* holds, int* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int count = __syncthreads_count(holds[i]);
    const int all = __syncthreads_and(holds[i]);
    __syncthreads_or(0);  // the last vote must not return an earlier result
    const int any = __syncthreads_or(holds[i]);
    out[3 * i] = count;
    out[3 * i + 1] = all != 0;
    out[3 * i + 2] = any != 0;
}

torch::Tensor votes(torch::Tensor holds) {
    auto out = integers({holds.size(0), holds.size(1), 3});
    votes_kernel<<<holds.size(0), holds.size(1)>>>(holds.data_ptr<int>(), out.data_ptr<int>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// Threads from `staying` on return before the barriers that the other threads reach.
static __global__ void early_return_kernel(int* out, int staying) {
    __shared__ int shared[256];
    const int i = threadIdx.x;
    if (i >= staying) return;
    shared[i] = i;
    __syncthreads();
    const int neighbour = shared[(i + 1) % staying];
    __syncthreads();
    shared[i] = neighbour;
    __syncthreads();
    out[i] = shared[(i + 1) % staying];
}

torch::Tensor early_return(int64_t threads, int64_t staying) {
    auto out = integers({threads});
    early_return_kernel<<<1, threads>>>(out.data_ptr<int>(), staying);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

static __global__ void divergent_kernel(int* out) {
    if (threadIdx.y == 1) {
        __syncthreads();
    } else {
        // Deadlock: these lanes wait for the lanes at the barrier, which wait for these lanes.
        __syncwarp();
    }
    *out = 1;
}

torch::Tensor divergent_barrier() {
    auto out = integers({1});
    divergent_kernel<<<dim3(1, 2), dim3(4, 2)>>>(out.data_ptr<int>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// ------------------------------------------------------------------------------------------------- warps

static __global__ void shuffles_kernel(int* out, int width) {
    const unsigned full = 0xffffffffu;
    const int i = threadIdx.x, n = blockDim.x;
    out[i] = __shfl_sync(full, i, 3, width);
    out[n + i] = __shfl_up_sync(full, i, 1, width);
    out[2 * n + i] = __shfl_down_sync(full, i, 2, width);
    out[3 * n + i] = __shfl_xor_sync(full, i, 1, width);
}

torch::Tensor shuffles(int64_t threads, int64_t width) {
    auto out = integers({4, threads});
    shuffles_kernel<<<1, threads>>>(out.data_ptr<int>(), width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

template <class T>
static __global__ void warp_sum_kernel(const T* x, T* out) {
    T sum = x[blockIdx.x * warpSize + threadIdx.x];
    for (int delta = warpSize / 2; delta > 0; delta /= 2) sum += __shfl_down_sync(0xffffffffu, sum, delta);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

torch::Tensor warp_sum(torch::Tensor x) {
    auto out = torch::empty({x.size(0)}, x.options());
    AT_DISPATCH_ALL_TYPES(x.scalar_type(), "warp_sum", [&] {
        warp_sum_kernel<scalar_t><<<x.size(0), 32>>>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>());
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

static __global__ void ballots_kernel(const int* holds, int* out) {
    const unsigned full = 0xffffffffu;
    const int i = threadIdx.x, n = blockDim.x;
    out[i] = static_cast<int>(__ballot_sync(full, holds[i]));
    out[n + i] = __any_sync(full, holds[i]) != 0;
    out[2 * n + i] = __all_sync(full, holds[i]) != 0;
}

torch::Tensor ballots(torch::Tensor holds) {
    auto out = integers({3, holds.size(0)});
    ballots_kernel<<<1, holds.size(0)>>>(holds.data_ptr<int>(), out.data_ptr<int>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// The two halves of a warp diverge, and each shuffles and votes separately, a different number of times.
static __global__ void half_warps_kernel(int* out) {
    const int i = threadIdx.x;
    int value = i;
    unsigned ballot;
    if (i < 16) {
        value = __shfl_sync(0x0000ffffu, value, (i + 1) % 16);
        ballot = __ballot_sync(0x0000ffffu, i % 2);
    } else {
        for (int step = 0; step < 3; ++step) value = __shfl_sync(0xffff0000u, value, 16 + (i + 1) % 16);
        ballot = __ballot_sync(0xffff0000u, i % 2);
    }
    __syncwarp();
    out[i] = value;
    out[32 + i] = static_cast<int>(ballot);
}

torch::Tensor half_warps() {
    auto out = integers({2, 32});
    half_warps_kernel<<<1, 32>>>(out.data_ptr<int>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

static __global__ void outside_its_mask_kernel(int* out) { out[threadIdx.x] = __shfl_sync(0x1u, 7, 0); }

torch::Tensor outside_its_mask() {
    auto out = integers({32});
    outside_its_mask_kernel<<<1, 32>>>(out.data_ptr<int>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// The same in a source that throws what cudaGetErrorString returns.
torch::Tensor outside_its_mask_by_its_own_check() {
    auto out = integers({32});
    outside_its_mask_kernel<<<1, 32>>>(out.data_ptr<int>());
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
    return out;
}

// Lane 0 waits for lane 1, lane 1 for lane 2, and lane 2 for lane 0.
static __global__ void circular_masks_kernel(int* out) {
    const unsigned i = threadIdx.x;
    __syncwarp(1u << i | 1u << (i + 1) % 3);
    out[i] = 1;
}

torch::Tensor circular_masks() {
    auto out = integers({3});
    circular_masks_kernel<<<1, 3>>>(out.data_ptr<int>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// -------------------------------------------------------------------------------------------- alignment

// Reads a V at byte `offset` of x, or of its copy in shared memory, and writes it to y.
template <class V>
static __global__ void vector_kernel(const char* x, char* y, int offset, int where) {
    __shared__ char copy[64];
    for (int i = threadIdx.x; i < 64; i += blockDim.x) copy[i] = x[i];
    __syncthreads();
    auto* aligned = reinterpret_cast<V*>(y);
    const auto* wanted = reinterpret_cast<const V*>((where == 1 ? copy : x) + offset);  // a pointer is no access
    if (where == 2) {  // an honest kernel: the vectors are read only where they are aligned
        if (offset % sizeof(V)) return;
    }
    aligned[threadIdx.x] = wanted[threadIdx.x % 2];
}

torch::Tensor read_vectors(torch::Tensor x, std::string type, int64_t offset, int64_t where) {
    auto y = torch::zeros({4 * 16}, x.options());
    const auto* from = reinterpret_cast<const char*>(x.data_ptr());
    auto* to = reinterpret_cast<char*>(y.data_ptr());
    if (type == "float2") vector_kernel<float2><<<1, 2>>>(from, to, offset, where);
    if (type == "float4") vector_kernel<float4><<<1, 2>>>(from, to, offset, where);
    if (type == "int4") vector_kernel<int4><<<1, 2>>>(from, to, offset, where);
    if (type == "double2") vector_kernel<double2><<<1, 2>>>(from, to, offset, where);
    if (type == "half2") vector_kernel<__half2><<<1, 2>>>(from, to, offset, where);
    if (type == "float") vector_kernel<float><<<1, 2>>>(from, to, offset, where);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

// A thread's own variables are in registers, which have no alignment.
static __global__ void own_variables_kernel(float* y) {
    struct {
        float first, pair[2], last;
    } own;
    own.pair[0] = threadIdx.x;
    own.pair[1] = 1;
    own.last = own.first = 0;
    const float2 read = *reinterpret_cast<float2*>(own.pair);
    y[threadIdx.x] = read.x + read.y;
}

torch::Tensor own_variables() {
    auto y = torch::empty({32}, torch::device(torch::kCUDA));
    own_variables_kernel<<<1, 32>>>(y.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

// ----------------------------------------------------------------------------------------------- atomics

template <class T>
static __global__ void accumulate_kernel(T* total) {
    atomicAdd(total, 1);
}

torch::Tensor accumulate(torch::Tensor total, int64_t blocks, int64_t threads) {
    if (total.scalar_type() == torch::kInt) accumulate_kernel<<<blocks, threads>>>(total.data_ptr<int>());
    if (total.scalar_type() == torch::kFloat) accumulate_kernel<<<blocks, threads>>>(total.data_ptr<float>());
    if (total.scalar_type() == torch::kDouble) accumulate_kernel<<<blocks, threads>>>(total.data_ptr<double>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return total;
}

static __global__ void atomics_kernel(int* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicMax(out, i);
    atomicMin(out + 1, -i);
    atomicSub(out + 2, 1);
    atomicOr(out + 3, 1 << i % 31);
    atomicAnd(out + 4, ~(1 << i % 31));
    atomicXor(out + 5, i);
    atomicExch(out + 6, 5);
    // A compare-and-swap loop, as for a lock: each increment reads the value of the one before.
    int seen = out[7], expected;
    do {
        expected = seen;
        seen = atomicCAS(out + 7, expected, expected + 2);
    } while (seen != expected);
}

torch::Tensor atomics(torch::Tensor out, int64_t blocks, int64_t threads) {
    atomics_kernel<<<blocks, threads>>>(out.data_ptr<int>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// ----------------------------------------------------------------------------------------- shared memory

// The contents of a block's shared memory before the block writes to it.
static __global__ void unwritten_kernel(float* out) {
    __shared__ float fixed[32];
    extern __shared__ float dynamic[];
    const int i = threadIdx.x;
    out[(blockIdx.x * 2) * 32 + i] = fixed[i];
    out[(blockIdx.x * 2 + 1) * 32 + i] = dynamic[i];
    fixed[i] = dynamic[i] = 0.0f;
}

torch::Tensor unwritten_shared_memory(int64_t blocks) {
    auto out = torch::zeros({blocks, 2, 32}, torch::TensorOptions().device(torch::kCUDA));
    unwritten_kernel<<<blocks, 32, 32 * sizeof(float)>>>(out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

template <int COLUMNS>
static __global__ void rotate_rows_kernel(int* out, int rows) {
    extern __shared__ __align__(16) int tile[][COLUMNS];
    for (int r = 0; r < rows; ++r) tile[r][threadIdx.x] = r * COLUMNS + threadIdx.x;
    __syncthreads();
    for (int r = 0; r < rows; ++r)
        out[(blockIdx.x * rows + r) * COLUMNS + threadIdx.x] = tile[r][(threadIdx.x + 1) % COLUMNS];
}

torch::Tensor rotate_rows(int64_t blocks, int64_t rows) {
    auto out = integers({blocks, rows, 8});
    rotate_rows_kernel<8><<<blocks, 8, rows * 8 * sizeof(int)>>>(out.data_ptr<int>(), rows);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// ---------------------------------------------------------------------------------------------- launches

static __global__ void coordinates_kernel(int* out) {
    const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const int threads = blockDim.x * blockDim.y * blockDim.z;
    out[block * threads + thread] = block * threads + thread;
}

torch::Tensor coordinates(std::vector<int64_t> g, std::vector<int64_t> b) {
    auto out = integers({g[0] * g[1] * g[2] * b[0] * b[1] * b[2]});
    coordinates_kernel<<<dim3(g[0], g[1], g[2]), dim3(b[0], b[1], b[2])>>>(out.data_ptr<int>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

// The host's own variables may have the names of the built-in ones.
torch::Tensor hidden_names() {
    auto out = integers({6});
    dim3 blockDim(3), gridDim(2, 1);
    int threadIdx = 0;
    coordinates_kernel<<<gridDim, blockDim>>>(out.data_ptr<int>() + threadIdx);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

template <class T>
static __global__ void transpose_kernel(torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> x,
                                        torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> out) {
    const int i = threadIdx.x, j = blockIdx.x;
    if (i < x.size(0)) out[j][i] = x[i][j];
}

torch::Tensor transpose(torch::Tensor x) {
    auto out = torch::empty({x.size(1), x.size(0)}, x.options());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "transpose", ([&] {
        transpose_kernel<scalar_t><<<x.size(1), 32>>>(x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
                                                      out.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>());
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

static __global__ void touch_kernel(int* out) { *out = 1; }

// The output of a launch with this configuration, its error, and the error of a later cudaGetLastError.
std::tuple<torch::Tensor, std::string, std::string> touch(std::vector<int64_t> g, std::vector<int64_t> b, int64_t shared) {
    auto out = integers({1});
    touch_kernel<<<dim3(g[0], g[1], g[2]), dim3(b[0], b[1], b[2]), shared>>>(out.data_ptr<int>());
    const std::string first = cudaGetErrorName(cudaGetLastError());
    return {out, first, cudaGetErrorName(cudaGetLastError())};
}

// The same with an address in host memory.
std::tuple<std::string, std::string> touch_host() {
    int on_the_host = 0;
    touch_kernel<<<1, 1>>>(&on_the_host);
    const std::string first = cudaGetErrorName(cudaGetLastError());
    return {first, cudaGetErrorName(cudaGetLastError())};
}

constexpr int kFewThreads = 64;
template <class T, int rows>
struct Tile {
    static constexpr unsigned kThreads = rows * 32;
};
#define BOUNDS 64, 2
static __global__ void __launch_bounds__(kFewThreads) bounded_kernel(int* out) { *out = 1; }
template <class T, int threads>
__global__ __launch_bounds__(2 * threads, 2, 1) void bounded_template(T* out) { *out = 1; }
template <class T, int rows>
__launch_bounds__(Tile<T, rows>::kThreads) __global__ void bounded_by_a_type(T* out) {
    __shared__ T one;
    if (threadIdx.x == 0) one = 1;
    __syncthreads();
    *out = one;
}
static __global__ void __launch_bounds__(BOUNDS) bounded_by_a_macro(int* out) { *out = 1; }

// The same for a kernel whose launch bounds allow 64 threads, written in one of four ways.
std::tuple<torch::Tensor, std::string, std::string> touch_bounded(int64_t how, std::vector<int64_t> g, std::vector<int64_t> b) {
    auto out = integers({1});
    const dim3 grid(g[0], g[1], g[2]), block(b[0], b[1], b[2]);
    int* to = out.data_ptr<int>();
    if (how == 0) bounded_kernel<<<grid, block>>>(to);
    if (how == 1) bounded_template<int, 32><<<grid, block>>>(to);
    if (how == 2) bounded_by_a_type<int, 2><<<grid, block>>>(to);
    if (how == 3) bounded_by_a_macro<<<grid, block>>>(to);
    const std::string first = cudaGetErrorName(cudaGetLastError());
    return {out, first, cudaGetErrorName(cudaGetLastError())};
}

static __global__ void fill_kernel(float* out, int64_t count, float value) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) out[i] = value;
}

// Writes to its argument, in whatever memory it is.
torch::Tensor fill(torch::Tensor x, double value) {
    fill_kernel<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), x.numel(), value);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return x;
}

// ---------------------------------------------------------------------------------- the runtime's own calls

std::vector<double> memory_calls() {
    float *a = nullptr, *b = nullptr;
    std::vector<float> host{1, 2, 3, 4}, back(4);
    const std::size_t bytes = 4 * sizeof(float);
    C10_CUDA_CHECK(cudaMalloc(&a, bytes));
    C10_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&b), bytes));
    C10_CUDA_CHECK(cudaMemcpy(a, host.data(), bytes, cudaMemcpyHostToDevice));
    C10_CUDA_CHECK(cudaMemset(b, 0, bytes));
    C10_CUDA_CHECK(cudaMemcpyAsync(b, a, bytes / 2, cudaMemcpyDeviceToDevice, at::cuda::getCurrentCUDAStream()));
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    C10_CUDA_CHECK(cudaMemcpy(back.data(), b, bytes, cudaMemcpyDeviceToHost));
    C10_CUDA_CHECK(cudaFree(a));
    C10_CUDA_CHECK(cudaFree(b));
    return std::vector<double>(back.begin(), back.end());
}

// The names of the errors of invalid calls.
std::vector<std::string> mistaken_memory_calls() {
    int host[2] = {0, 0}, *device = nullptr;
    C10_CUDA_CHECK(cudaMalloc(&device, sizeof host));
    const auto name = [](cudaError_t error) { return std::string(cudaGetErrorName(error)); };
    std::vector<std::string> out{
        name(cudaMemcpy(host, device, sizeof host, cudaMemcpyHostToDevice)),
        name(cudaMemcpy(host, host, sizeof host, cudaMemcpyDeviceToHost)),
        name(cudaMemset(host, 0, sizeof host)),
        name(cudaFree(host)),
        name(cudaSetDevice(1)),
    };
    cudaGetLastError();
    out.push_back(name(cudaFree(device)));
    out.push_back(name(cudaFree(device)));
    out.push_back(name(cudaFree(nullptr)));
    return out;
}

torch::Tensor fresh(std::vector<int64_t> sizes) { return torch::empty(sizes, torch::TensorOptions().device(torch::kCUDA)); }

std::vector<bool> placement(torch::Tensor x) {
    const c10::cuda::CUDAGuard guard(x.device());
    return {x.is_cuda(), x.device() == torch::Device(torch::kCUDA, 0), x.device().type() == torch::kCUDA,
            x.options().device().is_cuda(), torch::zeros({1}, x.options()).is_cuda(), x.to(torch::kCPU).is_cpu()};
}

// ----------------------------------------------------------------------------------------------- cuBLAS

static cublasOperation_t operation(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

// C = alpha op(A) op(B) + beta C, everything column-major; the status's name.
std::string gemm(torch::Tensor a, torch::Tensor b, torch::Tensor c, bool ta, bool tb, std::vector<int64_t> mnk, std::vector<int64_t> ld, double alpha, double beta) {
    const auto handle = at::cuda::getCurrentCUDABlasHandle();
    const int m = mnk[0], n = mnk[1], k = mnk[2];
    if (c.scalar_type() == torch::kDouble)
        return cublasGetStatusName(cublasDgemm(
            handle, operation(ta), operation(tb), m, n, k, &alpha, a.data_ptr<double>(), ld[0], b.data_ptr<double>(),
            ld[1], &beta, c.data_ptr<double>(), ld[2]));
    const float alpha_f = alpha, beta_f = beta;
    return cublasGetStatusName(cublasSgemm(
        handle, operation(ta), operation(tb), m, n, k, &alpha_f, a.data_ptr<float>(), ld[0], b.data_ptr<float>(), ld[1],
        &beta_f, c.data_ptr<float>(), ld[2]));
}

std::vector<std::string> handles() {
    cublasHandle_t handle = nullptr;
    std::vector<std::string> out{cublasGetStatusName(cublasSetStream(handle, nullptr))};
    out.push_back(cublasGetStatusName(cublasCreate(&handle)));
    out.push_back(cublasGetStatusName(cublasSetStream(handle, at::cuda::getCurrentCUDAStream())));
    out.push_back(cublasGetStatusName(cublasDestroy(handle)));
    return out;
}
