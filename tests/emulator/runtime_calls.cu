// The runtime's host calls other than malloc and memcpy, each with its result.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cooperative_groups.h>
#include <cublasLt.h>
#include <cuda_fp16.h>
#include <torch/extension.h>

#include <cuda/barrier>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

__constant__ float coefficients[4];
__device__ int counter;

static __global__ void use_symbols(float* out) {
    out[threadIdx.x] = 2 * coefficients[threadIdx.x];
    atomicAdd(&counter, 1);
}

std::vector<double> symbols() {
    const float host[4] = {1, 2, 3, 4};
    float *out, back[4];
    int count = 5;
    cudaMemcpyToSymbol(coefficients, host, sizeof host);
    cudaMemcpyToSymbol(coefficients, host, sizeof(float), 2 * sizeof(float));
    cudaMemcpyToSymbol(counter, &count, sizeof count);
    cudaMallocAsync(&out, sizeof back, nullptr);
    use_symbols<<<1, 4>>>(out);
    cudaMemcpy(back, out, sizeof back, cudaMemcpyDefault);
    cudaFreeAsync(out, nullptr);
    cudaMemcpyFromSymbol(&count, counter, sizeof count);
    void* address;
    size_t size;
    cudaGetSymbolAddress(&address, coefficients);
    cudaGetSymbolSize(&size, coefficients);
    use_symbols<<<1, 4>>>(static_cast<float*>(address));
    const double overrun = cudaMemcpyToSymbol(coefficients, host, sizeof host, 4);
    return {back[0], back[1], back[2], back[3], double(count), double(size), double(cudaDeviceSynchronize()), overrun};
}

std::vector<double> pitched() {
    float host[3][5], back[3][5] = {};
    for (int i = 0; i < 15; ++i) host[i / 5][i % 5] = i;
    float* device;
    size_t pitch;
    cudaMallocPitch(&device, &pitch, sizeof host[0], 3);
    cudaMemcpy2D(device, pitch, host, sizeof host[0], sizeof host[0], 3, cudaMemcpyHostToDevice);
    cudaMemset2D(device, pitch, 0, sizeof(float), 2);
    cudaMemcpy2DAsync(back, sizeof back[0], device, pitch, sizeof host[0], 3, cudaMemcpyDeviceToHost, nullptr);
    cudaFree(device);
    std::vector<double> out(&back[0][0], &back[0][0] + 15);
    out.push_back(cudaMemcpy2D(back, 4, back, 20, 8, 1, cudaMemcpyHostToHost));
    return out;
}

static std::string name(cudaError_t error) { return cudaGetErrorName(error); }

std::vector<std::string> streams_and_events() {
    cudaStream_t stream, other;
    cudaEvent_t start, end, untimed;
    float ms = -1;
    std::vector<std::string> out{
        name(cudaStreamCreate(&stream)), name(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking)),
        name(cudaEventCreate(&start)), name(cudaEventCreate(&end)), name(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming)),
        name(cudaEventElapsedTime(&ms, start, end)),  // not recorded yet
        name(cudaEventRecord(start, stream)), name(cudaEventRecord(end, stream)), name(cudaEventRecord(untimed)),
        name(cudaStreamWaitEvent(other, end, 0)), name(cudaEventSynchronize(end)), name(cudaEventElapsedTime(&ms, start, end)),
        name(cudaEventElapsedTime(&ms, start, untimed)), name(cudaStreamQuery(stream)), name(cudaStreamDestroy(stream)),
        name(cudaEventDestroy(start)),
    };
    out.push_back(ms >= 0 ? "elapsed" : "nothing");
    cudaGetLastError();
    return out;
}

static void CUDART_CB count_up(void* counter) { ++*static_cast<int*>(counter); }

// How often the host function ran.
int64_t host_function() {
    int calls = 0;
    cudaLaunchHostFunc(nullptr, count_up, &calls);
    cudaStreamSynchronize(nullptr);
    return calls;
}

std::vector<double> device_attributes() {
    cudaDeviceProp p;
    cudaGetDeviceProperties(&p, 0);
    int optin, wrong = -1;
    cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    const cudaError_t bad = cudaDeviceGetAttribute(&wrong, cudaDevAttrWarpSize, 7);
    cudaGetLastError();
    auto* t = at::cuda::getCurrentDeviceProperties();
    return {double(p.major), double(p.warpSize), double(p.maxThreadsPerBlock), double(p.sharedMemPerBlockOptin), double(optin),
            double(p.multiProcessorCount), double(t->multiProcessorCount), double(bad)};
}

template <class T, int N>
static __global__ void much_shared(T* out, int n) {
    extern __shared__ unsigned char bytes[];
    T* shared = reinterpret_cast<T*>(bytes);
    for (int i = threadIdx.x; i < n; i += blockDim.x) shared[i] = static_cast<T>(i);
    __syncthreads();
    out[threadIdx.x] = shared[n - 1 - static_cast<int>(threadIdx.x)];
}
static __global__ void other_kernel(float* out) { extern __shared__ float s[]; *out = s[0] = 1; }

// 96 KiB: rejected until cudaFuncSetAttribute grants it to this kernel, however it is launched. Other kernels keep 48.
std::vector<std::string> dynamic_shared_memory(torch::Tensor out) {
    const int bytes = 96 * 1024;
    float* p = out.data_ptr<float>();
    std::vector<std::string> errors;
    auto last = [&] { errors.push_back(name(cudaGetLastError())); };
    much_shared<float, 4><<<1, 32, bytes>>>(p, bytes / 4); last();
    errors.push_back(name(cudaFuncSetAttribute((const void*)much_shared<float, 4>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)));
    much_shared<float, 4><<<1, 32, bytes>>>(p, bytes / 4); last();
    auto kernel = much_shared<float, 4>;
    kernel<<<1, 32, bytes>>>(p, bytes / 4); last();
    other_kernel<<<1, 1, bytes>>>(p); last();
    errors.push_back(name(cudaFuncSetAttribute(other_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 300 * 1024))); last();
    return errors;
}

static __global__ void scale_kernel(float* x, float by, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}

std::vector<double> launched_as_a_value(torch::Tensor x) {
    float* p = x.data_ptr<float>();
    float by = 3;
    int n = x.numel(), grid = 0, block = 0, blocks = 0;
    void* args[] = {&p, &by, &n};
    const auto first = cudaLaunchKernel((void*)scale_kernel, dim3(1), dim3(64), args, 0, nullptr);
    const auto second = cudaLaunchKernel((const void*)&scale_kernel, dim3(1), dim3(2000), args, 0, nullptr);
    cudaGetLastError();
    cudaOccupancyMaxPotentialBlockSize(&grid, &block, scale_kernel, 0, 256);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale_kernel, 256, 0);
    cudaFuncAttributes attributes;
    cudaFuncGetAttributes(&attributes, scale_kernel);
    return {double(first), double(second), double(block), double(grid), double(blocks), double(attributes.maxThreadsPerBlock)};
}

// The functions that take a kernel, with a pointer to one and with the address of this pointer. Returns their errors.
std::vector<int64_t> kernel_in_a_variable(bool address) {
    void (*held)(float*, float, int) = scale_kernel;
    int blocks = 0, grid = 0, block = 0;
    cudaFuncAttributes attributes;
    const auto all = [&](auto kernel) {
        return std::vector<int64_t>{
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 64, 0),
            cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, kernel, 64, 0, 0),
            cudaOccupancyMaxPotentialBlockSize(&grid, &block, kernel, 0, 0),
            cudaFuncGetAttributes(&attributes, kernel),
            cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 50),
        };
    };
    const auto errors = address ? all(&held) : all(held);
    cudaGetLastError();
    return errors;
}

// A cooperative launch may have as many blocks as fit on the device, and not one more.
std::vector<double> too_large_a_grid(torch::Tensor x) {
    float* p = x.data_ptr<float>();
    float by = 1;
    int n = 1, blocks = 0;
    void* args[] = {&p, &by, &n};
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale_kernel, 1024, 0);
    const int fits = blocks * at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    const auto at_limit = cudaLaunchCooperativeKernel(scale_kernel, dim3(fits), dim3(1024), args, 0, nullptr);
    const auto past_limit = cudaLaunchCooperativeKernel(scale_kernel, dim3(fits + 1), dim3(1024), args, 0, nullptr);
    cudaGetLastError();
    return {double(at_limit), double(past_limit)};
}

torch::Tensor guards_streams_and_workspaces(torch::Tensor x) {
    const at::cuda::CUDAGuard guard(x.device());
    const c10::cuda::OptionalCUDAGuard optional(device_of(x));
    const auto stream = at::cuda::getCurrentCUDAStream();
    at::cuda::CUDAEvent event;
    auto out = torch::empty_like(x);
    void* workspace = c10::cuda::CUDACachingAllocator::raw_alloc(x.nbytes());
    C10_CUDA_CHECK(cudaMemcpyAsync(workspace, x.data_ptr(), x.nbytes(), cudaMemcpyDeviceToDevice, stream));
    event.record(stream);
    event.block(stream);
    C10_CUDA_CHECK(cudaMemcpyAsync(out.data_ptr(), workspace, x.nbytes(), cudaMemcpyDeviceToDevice, stream));
    c10::cuda::CUDACachingAllocator::raw_delete(workspace);
    stream.synchronize();
    return out;
}

// ---------------------------------------------------------------------------------------------------- cuBLAS

static cublasHandle_t handle() { return at::cuda::getCurrentCUDABlasHandle(); }

// Row-major c = a b for a batch of half-precision matrices, three ways.
torch::Tensor half_batches(torch::Tensor a, torch::Tensor b, std::string how) {
    const int B = a.size(0), M = a.size(1), K = a.size(2), N = b.size(2);
    auto c = torch::empty({B, M, N}, a.options());
    auto *pa = static_cast<__half*>(a.data_ptr()), *pb = static_cast<__half*>(b.data_ptr()), *pc = static_cast<__half*>(c.data_ptr());
    const __half one = __float2half(1.f), zero = __float2half(0.f);
    const float fone = 1, fzero = 0;
    auto n = CUBLAS_OP_N;
    if (how == "strided") {
        TORCH_CHECK(!cublasHgemmStridedBatched(handle(), n, n, N, M, K, &one, pb, N, K * N, pa, K, M * K, &zero, pc, N, M * N, B));
    } else if (how == "ex" || how == "ex, fast") {
        TORCH_CHECK(!cublasGemmStridedBatchedEx(handle(), n, n, N, M, K, &fone, pb, CUDA_R_16F, N, K * N, pa, CUDA_R_16F, K, M * K, &fzero, pc,
                                                CUDA_R_16F, N, M * N, B, how == "ex" ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_FAST_16F, CUBLAS_GEMM_DEFAULT));
    } else {
        std::vector<int64_t> addresses;
        for (auto* base : {pb, pa, pc})
            for (int i = 0; i < B; ++i) addresses.push_back(reinterpret_cast<int64_t>(base + i * (base == pb ? K * N : base == pa ? M * K : M * N)));
        auto lists = torch::empty({3 * B}, torch::kInt64);
        std::copy(addresses.begin(), addresses.end(), lists.data_ptr<int64_t>());
        lists = lists.to(a.device());
        auto** p = reinterpret_cast<__half**>(lists.data_ptr<int64_t>());
        TORCH_CHECK(!cublasHgemmBatched(handle(), n, n, N, M, K, &one, p, N, p + B, K, &zero, p + 2 * B, N, B));
    }
    return c;
}

// The row-major outer product of two vectors of float32, by a handle and a call that may allow rounded operands.
torch::Tensor outer(torch::Tensor a, torch::Tensor b, int64_t compute, int64_t mode, int64_t algorithm) {
    const int M = a.numel(), N = b.numel();
    auto c = torch::empty({M, N}, a.options());
    const float one = 1, zero = 0;
    cublasHandle_t own;
    TORCH_CHECK(!cublasCreate(&own) && !cublasSetMathMode(own, static_cast<cublasMath_t>(mode)));
    TORCH_CHECK(!cublasGemmEx(own, CUBLAS_OP_N, CUBLAS_OP_N, N, M, 1, &one, b.data_ptr(), CUDA_R_32F, N, a.data_ptr(), CUDA_R_32F, 1, &zero, c.data_ptr(),
                              CUDA_R_32F, N, static_cast<cublasComputeType_t>(compute), static_cast<cublasGemmAlgo_t>(algorithm)));
    TORCH_CHECK(!cublasDestroy(own));
    return c;
}

// The row-major product a b^T with a bias for each column, by cublasLtMatmul. Its column-major D is b a^T.
std::tuple<torch::Tensor, int64_t> lt_linear(torch::Tensor a, torch::Tensor b, torch::Tensor bias, int64_t epilogue, int64_t compute, bool by_rows) {
    const int M = a.size(0), K = a.size(1), N = b.size(0);
    auto d = torch::zeros({M, N}, a.options());
    const auto type = a.scalar_type() == torch::kHalf ? CUDA_R_16F : CUDA_R_32F;
    cublasLtHandle_t own;
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t pa, pb, pd;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    TORCH_CHECK(!cublasLtCreate(&own) && !cublasLtMatmulDescCreate(&how, static_cast<cublasComputeType_t>(compute), CUDA_R_32F));
    const cublasOperation_t transpose = CUBLAS_OP_T, keep = CUBLAS_OP_N;
    const auto what = static_cast<cublasLtEpilogue_t>(epilogue);
    const cublasLtOrder_t rows = CUBLASLT_ORDER_ROW;
    const void* address = bias.data_ptr();
    const auto set = [&](cublasLtMatmulDescAttributes_t which, const auto& value) { TORCH_CHECK(!cublasLtMatmulDescSetAttribute(how, which, &value, sizeof value)); };
    set(CUBLASLT_MATMUL_DESC_TRANSA, by_rows ? keep : transpose);
    set(CUBLASLT_MATMUL_DESC_TRANSB, by_rows ? transpose : keep);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, what);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, address);
    const auto layout = [&](cublasLtMatrixLayout_t* out, int first, int second) {
        TORCH_CHECK(!cublasLtMatrixLayoutCreate(out, type, by_rows ? second : first, by_rows ? first : second, first));
        if (by_rows) TORCH_CHECK(!cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_ORDER, &rows, sizeof rows));
    };
    layout(&pa, K, M), layout(&pb, K, N), layout(&pd, N, M);
    const size_t workspace = 1 << 22;
    TORCH_CHECK(!cublasLtMatmulPreferenceCreate(&preference) &&
                !cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    auto *first = by_rows ? pa : pb, *second = by_rows ? pb : pa;
    TORCH_CHECK(!cublasLtMatmulAlgoGetHeuristic(own, how, first, second, pd, pd, preference, 1, &best, &found) && found == 1);
    const float one = 1, zero = 0;
    const cublasStatus_t status = cublasLtMatmul(own, how, &one, by_rows ? a.data_ptr() : b.data_ptr(), first, by_rows ? b.data_ptr() : a.data_ptr(), second, &zero,
                                                 d.data_ptr(), pd, d.data_ptr(), pd, &best.algo, nullptr, 0, at::cuda::getCurrentCUDAStream());
    cublasLtMatmulPreferenceDestroy(preference), cublasLtMatmulDescDestroy(how), cublasLtDestroy(own);
    for (auto* each : {pa, pb, pd}) cublasLtMatrixLayoutDestroy(each);
    return {d, status};
}

// ------------------------------------------------------------------------------- copies bound to a barrier

__global__ void copies_kernel(const float* x, float* y, float* early) {
    __shared__ alignas(16) float tile[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    auto block = cooperative_groups::this_thread_block();
    if (block.thread_rank() == 0) init(&bar, block.size());
    tile[threadIdx.x] = -1;
    block.sync();
    cuda::memcpy_async(block, tile, x + blockIdx.x * 64, cuda::aligned_size_t<16>(32 * sizeof(float)), bar);
    cuda::memcpy_async(tile + 32 + threadIdx.x / 2, x + blockIdx.x * 64 + 32 + threadIdx.x / 2, threadIdx.x % 2 * sizeof(float), bar);
    early[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x];
    auto token = bar.arrive();
    bar.wait(std::move(token));
    y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
    bar.arrive_and_wait();
}
std::vector<torch::Tensor> copies_behind_a_barrier(torch::Tensor x) {
    auto y = torch::empty_like(x), early = torch::empty_like(x);
    copies_kernel<<<x.numel() / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), early.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {y, early};
}

// Column-major, all n x n, on the lower triangle: the level-3 routine of that name on a and b, with c before.
torch::Tensor level_3(torch::Tensor a, torch::Tensor b, torch::Tensor c, std::string op) {
    const int n = a.size(0);
    auto out = c.clone();
    const double two = 2, half = 0.5;
    const double *pa = a.data_ptr<double>(), *pb = b.data_ptr<double>();
    double* pc = out.data_ptr<double>();
    const auto lower = CUBLAS_FILL_MODE_LOWER;
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (op == "geam") status = cublasDgeam(handle(), CUBLAS_OP_T, CUBLAS_OP_N, n, n, &two, pa, n, &half, pb, n, pc, n);
    if (op == "symm") status = cublasDsymm(handle(), CUBLAS_SIDE_LEFT, lower, n, n, &two, pa, n, pb, n, &half, pc, n);
    if (op == "syrk") status = cublasDsyrk(handle(), lower, CUBLAS_OP_N, n, n, &two, pa, n, &half, pc, n);
    if (op == "syr2k") status = cublasDsyr2k(handle(), lower, CUBLAS_OP_T, n, n, &two, pa, n, pb, n, &half, pc, n);
    if (op == "trmm") status = cublasDtrmm(handle(), CUBLAS_SIDE_RIGHT, lower, CUBLAS_OP_N, CUBLAS_DIAG_UNIT, n, n, &two, pa, n, pb, n, pc, n);
    if (op == "trsm") status = cublasDtrsm(handle(), CUBLAS_SIDE_LEFT, lower, CUBLAS_OP_T, CUBLAS_DIAG_NON_UNIT, n, n, &two, pa, n, pc, n);
    if (op == "gemv") status = cublasDgemv(handle(), CUBLAS_OP_T, n, n, &two, pa, n, pb, 1, &half, pc, 2);
    TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, cublasGetStatusName(status));
    return out;
}
