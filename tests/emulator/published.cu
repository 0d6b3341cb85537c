// What published kernels use beside plain launches: other ways to launch, traps, small floats, pools, tiles, pipelines.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cublas_v2.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#include <torch/extension.h>

#include <atomic>
#include <cassert>
#include <chrono>
#include <cuda/pipeline>
#include <thread>
#include <vector>

namespace cg = cooperative_groups;

__global__ void add_kernel(float* x, float by) { x[blockIdx.x * blockDim.x + threadIdx.x] += by; }
template <class T, int N>
__global__ void times_f32_kernel(T* x) { x[threadIdx.x] *= N; }
template <class T>
__global__ void minus_f32_kernel(T* x) { x[threadIdx.x] -= 1; }

#define PASTED(op, type, ...) op##_##type##_kernel<float, __VA_ARGS__><<<1, 4>>>(p)
#define PASTED_PLAIN(op, type) op##_##type##_kernel<float><<<1, 4>>>(p)
#define BY_NAME(kernel, ...) kernel<<<1, 4>>>(__VA_ARGS__)

// Each of the nine launches adds 1, and the two products are by 2 and 3.
std::vector<double> launches(torch::Tensor x) {
    float *p = x.data_ptr<float>(), by = 1;
    void* args[] = {&p, &by};
    const void* address = (const void*)add_kernel;
    void* of_template = reinterpret_cast<void*>(&minus_f32_kernel<float>);
    void (*pointer)(float*, float) = add_kernel;
    std::vector<void (*)(float*, float)> table{add_kernel};
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = 1, config.blockDim = 4, config.attrs = attributes, config.numAttrs = 2;
    std::vector<double> errors;
    errors.push_back(cudaLaunchKernel(address, dim3(1), dim3(4), args, 0, nullptr));
    errors.push_back(cudaLaunchKernel((void*)pointer, dim3(1), dim3(4), args, 0, nullptr));
    errors.push_back(cudaLaunchKernelExC(&config, (void*)add_kernel, args));
    errors.push_back(cudaLaunchKernelEx(&config, add_kernel, p, 1));
    errors.push_back(cudaLaunchCooperativeKernel((void*)add_kernel, dim3(1), dim3(4), args, 0, nullptr));
    pointer<<<1, 4>>>(p, 1);
    (*table[0])<<<1, 4>>>(p, 1);
    BY_NAME(add_kernel, p, 1);
    add_kernel<<<1, 4>>>(p, 2);
    errors.push_back(cudaLaunchKernel(of_template, dim3(1), dim3(4), args, 0, nullptr));
    PASTED_PLAIN(minus, f32);
    minus_f32_kernel<float><<<1, 4>>>(p);
    PASTED(times, f32, 2);
    PASTED(times, f32, 3);
    // On a GPU, too, these fail: no kernel is at the address; too many threads.
    errors.push_back(cudaLaunchKernel((const void*)&address, dim3(1), dim3(4), args, 0, nullptr));
    config.blockDim = 2048;
    errors.push_back(cudaLaunchKernelExC(&config, (const void*)add_kernel, args));
    cudaGetLastError();
    return errors;
}

__global__ void grid_sums(const float* x, float* partial, float* y, int rounds) {
    const cg::grid_group grid = cg::this_grid();
    float kept[4] = {1.0f * threadIdx.x, 2, 3, 1.0f * blockIdx.x}, sum = x[grid.thread_rank()];
    __shared__ float first;
    for (int i = 0; i < rounds; ++i) {
        if (threadIdx.x == 0) first = sum, partial[blockIdx.x] = sum;
        grid.sync();
        sum = partial[(blockIdx.x + 1) % gridDim.x];
        if (kept[0] != threadIdx.x || kept[3] != blockIdx.x || first != partial[blockIdx.x]) sum = NAN;
        grid.sync();
    }
    y[grid.thread_rank()] = sum;
}

double cooperative(torch::Tensor x, torch::Tensor y, int64_t blocks, int64_t rounds) {
    auto partial = torch::empty({blocks}, x.options());
    const float* in = x.data_ptr<float>();
    float *between = partial.data_ptr<float>(), *out = y.data_ptr<float>();
    int count = rounds;
    void* args[] = {&in, &between, &out, &count};
    return cudaLaunchCooperativeKernel((void*)grid_sums, dim3(blocks), dim3(256), args, 0, nullptr);
}

__global__ void traps(float* x, int how, int* bad) {
    if (blockIdx.x == 1 && threadIdx.x == 3) {
        if (how == 1) assert(x == nullptr && "no memory");
        if (how == 2) __trap();
        if (how == 3) *bad = 1;
        if (how == 4) asm volatile("trap;");
        if (how == 5) x[1ll << 50] = 1;
    }
    x[blockIdx.x * blockDim.x + threadIdx.x] = how;
}
void trapped(torch::Tensor x, int64_t how) { traps<<<2, 32>>>(x.data_ptr<float>(), how, nullptr); }

__global__ void to_small(const float* x, int* y, int n) {
    const int i = threadIdx.x + blockDim.x * blockIdx.x;
    if (i >= n) return;
    int* out = y + 6 * i;
    out[0] = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E4M3);
    out[1] = __nv_fp8_e5m2(x[i]).__x;
    out[2] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E4M3);
    out[3] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E5M2);
    out[4] = __nv_cvt_float_to_fp6(x[i], __NV_E3M2, cudaRoundNearest);
    out[5] = __nv_fp4x2_e2m1(float2{x[i], -x[i]}).__x;
}
void small_floats(torch::Tensor x, torch::Tensor y) {
    to_small<<<x.numel() / 256 + 1, 256>>>(x.data_ptr<float>(), y.data_ptr<int>(), x.numel());
}

__global__ void fp8_mma(const unsigned* a, const unsigned* b, float* d) {
    float sums[4] = {};
    const unsigned *left = a + 4 * threadIdx.x, *right = b + 2 * threadIdx.x;
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
    for (int i = 0; i < 4; ++i) d[(threadIdx.x / 4 + i / 2 * 8) * 8 + threadIdx.x % 4 * 2 + i % 2] = sums[i];
}
void fp8_product(torch::Tensor a, torch::Tensor b, torch::Tensor d) {
    fp8_mma<<<1, 32>>>((const unsigned*)a.data_ptr(), (const unsigned*)b.data_ptr(), d.data_ptr<float>());
}

__global__ void store_transposed(const unsigned* x, unsigned* y) {
    __shared__ __align__(16) unsigned s[4 * 32];
    const unsigned row = __cvta_generic_to_shared(s + threadIdx.x * 4), *v = x + 4 * threadIdx.x;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]));
    __syncwarp();
    for (int i = 0; i < 4; ++i) y[4 * threadIdx.x + i] = s[4 * threadIdx.x + i];
}
void stmatrix_transposed(torch::Tensor x, torch::Tensor y) {
    store_transposed<<<1, 32>>>((const unsigned*)x.data_ptr(), (unsigned*)y.data_ptr());
}

__global__ void shuffles(int* out) {
    if (threadIdx.x < 4) out[threadIdx.x] = __shfl_down_sync(15, int(threadIdx.x) + 1, 2);
}
void outside_mask(torch::Tensor out) { shuffles<<<1, 32>>>(out.data_ptr<int>()); }

std::vector<double> pools() {
    cudaMemPool_t first, own;
    cudaMemPoolProps wanted = {};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location = {cudaMemLocationTypeDevice, 0};
    uint64_t used = 0, keep = UINT64_MAX, kept = 0;
    float *a, *b;
    std::vector<double> out{double(cudaDeviceGetDefaultMemPool(&first, 0)), double(cudaMemPoolCreate(&own, &wanted))};
    out.push_back(cudaMemPoolSetAttribute(own, cudaMemPoolAttrReleaseThreshold, &keep));
    cudaMemPoolGetAttribute(own, cudaMemPoolAttrReleaseThreshold, &kept);
    out.push_back(kept == keep);
    cudaMallocFromPoolAsync(&a, 1000, own, nullptr);
    cudaMallocAsync(&b, 500, nullptr);
    cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &used);
    out.push_back(used);
    cudaFreeAsync(a, nullptr);
    cudaFreeAsync(b, nullptr);
    cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &used);
    out.push_back(used);
    out.push_back(cudaMemPoolDestroy(own));
    out.push_back(cudaMemPoolDestroy(first));  // the default pool cannot be destroyed
    cudaGetLastError();
    return out;
}

template <int N>
__global__ void tile_sums(const float* x, float* y) {
    __shared__ cg::block_tile_memory<256> memory;
    const auto tile = cg::tiled_partition<N>(cg::this_thread_block(memory));
    const float mine = x[threadIdx.x], sum = cg::reduce(tile, mine, cg::plus<float>());
    y[threadIdx.x] = sum + tile.shfl(mine, 1) + 1000 * tile.meta_group_rank() + tile.any(threadIdx.x == 0);
}
void tiles(torch::Tensor x, torch::Tensor y, int64_t size) {
    if (size == 64) tile_sums<64><<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>());
    if (size == 128) tile_sums<128><<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>());
}

// A pipeline of three stages in which the first warp copies. `waits` false leaves out the consumers' wait.
__global__ void staged(const float* x, float* y, bool waits) {
    __shared__ float s[3][32];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 3> state;
    auto pipe = cuda::make_pipeline(cg::this_thread_block(), &state, 32);
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 8; ++i) {
        if (threadIdx.x < 32) {
            pipe.producer_acquire();
            cuda::memcpy_async(&s[i % 3][lane], x + 32 * i + lane, sizeof(float), pipe);
            pipe.producer_commit();
        } else {
            if (waits) pipe.consumer_wait();
            y[32 * i + lane] = 2 * s[i % 3][lane];
            pipe.consumer_release();
        }
    }
}
// The same in a pipeline of all threads, where a thread needs what another one has copied.
__global__ void unified(const float* x, float* y, bool waits) {
    __shared__ float s[2][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    const auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    for (int i = 0; i < 5; ++i) {
        if (i < 4) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, s[i % 2], x + 64 * i, sizeof s[0], pipe);
            pipe.producer_commit();
        }
        if (!i) continue;
        if (waits) pipe.consumer_wait();
        y[64 * (i - 1) + threadIdx.x] = 2 * s[(i - 1) % 2][63 - threadIdx.x];
        pipe.consumer_release();
    }
}
void pipelines(torch::Tensor x, torch::Tensor y, bool of_roles, bool waits) {
    if (of_roles) staged<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), waits);
    else unified<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), waits);
}

void half_sums(torch::Tensor a, torch::Tensor b, torch::Tensor c, bool in_half) {
    cublasHandle_t handle;
    cublasCreate(&handle);
    const int n = a.size(0);
    const __half one = 1.0f, zero = 0.0f;
    const float one_f = 1, zero_f = 0;
    const void *alpha = in_half ? (const void*)&one : &one_f, *beta = in_half ? (const void*)&zero : &zero_f;
    cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, n, a.size(1), alpha, a.data_ptr(), CUDA_R_16F, a.size(1), b.data_ptr(), CUDA_R_16F, a.size(1),
                 beta, c.data_ptr(), CUDA_R_16F, n, in_half ? CUBLAS_COMPUTE_16F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    cublasDestroy(handle);
}

__global__ void fill(float* x, float value) { *x = value; }
__global__ void pass(const float* from, float* to) { *to = *from; }
// One stream writes a number, another reads it. `how`: 0 nothing orders them, 1 an event does, 2 the host waits between.
double two_streams(int64_t how) {
    float *cell, *result, out = 0;
    cudaMalloc(&cell, 4), cudaMalloc(&result, 4);
    cudaMemset(cell, 0, 4);
    cudaStream_t a, b;
    cudaEvent_t done;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreate(&done);
    fill<<<1, 1, 0, a>>>(cell, 7);
    cudaEventRecord(done, a);
    if (how == 1) cudaStreamWaitEvent(b, done);
    if (how == 2) cudaStreamSynchronize(a);
    pass<<<1, 1, 0, b>>>(cell, result);
    cudaStreamSynchronize(b);
    cudaMemcpy(&out, result, 4, cudaMemcpyDeviceToHost);
    cudaDeviceSynchronize();
    cudaStreamDestroy(a), cudaStreamDestroy(b), cudaEventDestroy(done);
    cudaFree(cell), cudaFree(result);
    return out;
}
// A copy to pinned memory in the default stream or another one, which the host reads with or without a wait.
double pinned_copy(bool own_stream, bool waits) {
    float *cell, *host;
    cudaMalloc(&cell, 4), cudaMallocHost(&host, 4);
    cudaStream_t stream = nullptr;
    if (own_stream) cudaStreamCreate(&stream);
    *host = -1;
    fill<<<1, 1, 0, stream>>>(cell, 5);
    cudaMemcpyAsync(host, cell, 4, cudaMemcpyDeviceToHost, stream);
    if (waits) cudaStreamSynchronize(stream);
    const float out = *host;
    if (own_stream) cudaStreamDestroy(stream);
    cudaFreeHost(host), cudaFree(cell);
    return out;
}

__global__ void scale_and_add(float* x, float by, float more) { x[threadIdx.x] = x[threadIdx.x] * by + more; }
static void count_call(void* data) { ++*static_cast<int*>(data); }

// A graph of nodes: x = 1, x = x * 2 + 3 in a kernel, a count on the host, and x = x * 10 in a child graph. `ordered` is
// whether the child depends on the kernel. The child is added first, so that its place in the list does not help.
std::vector<double> built_graph(torch::Tensor x, bool ordered) {
    float *p = x.data_ptr<float>(), by = 2, more = 3, none = 0, ten = 10;
    void *first[] = {&p, &by, &more}, *last[] = {&p, &ten, &none};
    cudaGraph_t graph, child, copy;
    cudaGraphNode_t set, kernel, host, inner, nested, empty, nodes[8];
    cudaGraphCreate(&graph, 0), cudaGraphCreate(&child, 0);
    cudaKernelNodeParams params{};
    params.func = (void*)scale_and_add, params.gridDim = dim3(1), params.blockDim = dim3(4), params.kernelParams = last;
    cudaGraphAddKernelNode(&inner, child, nullptr, 0, &params);
    cudaGraphAddChildGraphNode(&nested, graph, nullptr, 0, child);
    const float one = 1;
    cudaMemsetParams filled{};
    filled.dst = p, filled.elementSize = 4, filled.width = 4, filled.height = 1;
    std::memcpy(&filled.value, &one, 4);
    cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &filled);
    params.kernelParams = first;
    cudaGraphAddKernelNode(&kernel, graph, &set, 1, &params);
    by = more = 0;  // a node has copies of the arguments
    int calls = 0;
    cudaHostNodeParams function{count_call, &calls};
    cudaGraphAddHostNode(&host, graph, &kernel, 1, &function);
    cudaGraphAddEmptyNode(&empty, graph, &host, 1);
    if (ordered) cudaGraphAddDependencies(graph, &kernel, &nested, nullptr, 1);

    std::vector<double> out;
    cudaGraphExec_t exec;
    out.push_back(cudaGraphInstantiate(&exec, graph, 0));
    const auto launched = [&] {
        cudaGraphLaunch(exec, nullptr);
        float value;
        cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost);
        return value;
    };
    out.push_back(launched());
    by = 1, more = 1;
    out.push_back(cudaGraphExecKernelNodeSetParams(exec, kernel, &params));
    out.push_back(launched());
    cudaGraphClone(&copy, graph);
    cudaGraphExecUpdateResultInfo info;
    out.push_back(cudaGraphExecUpdate(exec, copy, &info));  // the first arguments again
    out.push_back(launched());
    size_t count = 8, roots = 0;
    cudaGraphGetNodes(graph, nodes, &count);
    cudaGraphGetRootNodes(graph, nullptr, &roots);
    cudaGraphNodeType type;
    cudaGraphNodeGetType(nodes[1], &type);
    out.insert(out.end(), {double(count), double(roots), double(type), double(calls)});
    cudaGraphDestroyNode(empty);
    out.push_back(cudaGraphExecUpdate(exec, graph, &info));
    out.push_back(info.result);
    cudaGetLastError();
    cudaGraphAddDependencies(graph, &host, &set, nullptr, 1);  // a cycle
    cudaGraphExec_t never;
    out.push_back(cudaGraphInstantiate(&never, graph, 0));
    cudaGetLastError();
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaGraphDestroy(child), cudaGraphDestroy(copy);
    return out;
}

// A captured graph that is captured again with another argument, as programs do whose arguments change.
std::vector<double> updated_graph(torch::Tensor x) {
    float* p = x.data_ptr<float>();
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaGraphExec_t exec = nullptr;
    std::vector<double> out;
    for (const int launches : {1, 1, 2}) {
        cudaGraph_t graph;
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
        for (int i = 0; i < launches; ++i) scale_and_add<<<1, 4, 0, stream>>>(p, 1.f, out.empty() ? 1.f : 10.f);
        cudaStreamEndCapture(stream, &graph);
        cudaGraphExecUpdateResultInfo info;
        if (exec) out.push_back(cudaGraphExecUpdate(exec, graph, &info));
        else out.push_back(cudaGraphInstantiate(&exec, graph));
        if (out.back() == 0) cudaGraphLaunch(exec, stream);
        cudaGraphDestroy(graph);
    }
    cudaGetLastError();
    cudaStreamSynchronize(stream);
    cudaGraphExecDestroy(exec), cudaStreamDestroy(stream);
    return out;
}

// Hints for managed memory, as in CUDA 13.
int64_t hinted(torch::Tensor out) {
    float* x;
    cudaMallocManaged(&x, 16);
    for (int i = 0; i < 4; ++i) x[i] = 1;
    const cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};
    int64_t errors = cudaMemAdvise(x, 16, cudaMemAdviseSetPreferredLocation, device);
    errors += cudaMemPrefetchAsync(x, 16, device, 0, nullptr);
    scale_and_add<<<1, 4>>>(x, 2, 1);
    errors += cudaMemPrefetchAsync(x, 16, host, 0);
    cudaDeviceSynchronize();
    out.fill_(x[3]);
    return errors + cudaFree(x);
}

std::vector<double> cublas_vectors() {
    const float x[] = {1, -2, 0, -4, 3}, y[] = {5, 0, 0, 0, 1};
    float *dx, *dy, back[5] = {}, two = 2, dot = 0, norm = 0, sum = 0;
    cudaMalloc(&dx, sizeof x), cudaMalloc(&dy, sizeof y);
    cublasHandle_t handle;
    cublasCreate(&handle);
    cublasSetVector(5, sizeof(float), x, 1, dx, 1), cublasSetMatrix(5, 1, sizeof(float), y, 5, dy, 5);
    int largest = 0, smallest = 0;
    cublasSdot(handle, 5, dx, 1, dy, 1, &dot);
    cublasSnrm2(handle, 5, dx, 1, &norm);
    cublasSasum(handle, 3, dx, 2, &sum);
    cublasIsamax(handle, 5, dx, 1, &largest), cublasIsamin(handle, 5, dx, 1, &smallest);
    cublasSaxpy(handle, 2, &two, dx, 2, dy, -3);
    cublasSscal(handle, 5, &two, dy, 1);
    cublasGetVector(5, sizeof(float), dy, 1, back, 1);
    const double wrong = cublasSdot(handle, 5, x, 1, dy, 1, &dot);
    cublasDestroy(handle);
    return {dot, norm * norm, sum, double(largest), double(smallest), back[0], back[3], wrong};
}

// Aggregates atomic increments: the lanes with one address elect one of them, in a warp operation with their mask.
__global__ void aggregated(int* counters, int n) {
    int* own = counters + threadIdx.x % n;
    const unsigned lane = threadIdx.x % 32, peers = __match_any_sync(~0u, (unsigned long long)own);
    const int leader = __ffs(peers) - 1;
    int before = 0;
    if (lane == leader) before = atomicAdd(own, __popc(peers));
    before = __shfl_sync(peers, before, leader);
    if (before < 0) *own = 0;
}
void aggregate(torch::Tensor counters) { aggregated<<<100, 64>>>(counters.data_ptr<int>(), counters.numel()); }

__global__ void atomic_by_function(int* x) {
    __nv_atomic_fetch_add(x, 2, __NV_ATOMIC_RELAXED);
    __nv_atomic_fetch_max(x + 1, static_cast<int>(threadIdx.x), __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
    int expected = __nv_atomic_load_n(x + 2, __NV_ATOMIC_ACQUIRE);
    while (!__nv_atomic_compare_exchange_n(x + 2, &expected, expected + 3, false, __NV_ATOMIC_ACQ_REL, __NV_ATOMIC_RELAXED)) {}
    if (threadIdx.x == 5) __nv_atomic_store_n(x + 3, 7, __NV_ATOMIC_RELEASE);
}
void atomics(torch::Tensor x) { atomic_by_function<<<4, 64>>>(x.data_ptr<int>()); }

// The explicit conversions between the two 16-bit types; of bfloat16, 1 + 1/256 rounds to 1.
__global__ void across(float* out) {
    const __nv_bfloat16 b = 1.5f;
    const __half h = 1.00390625f;
    out[0] = __half2float(__half(b));
    out[1] = __bfloat162float(static_cast<__nv_bfloat16>(h));
}
void between_halves(torch::Tensor out) { across<<<1, 1>>>(out.data_ptr<float>()); }

// Sums of a warp without __syncwarp, in volatile shared memory: a tree, and a scan whose lanes read below their own.
template <int block> __device__ void last_warp(volatile float* sdata, unsigned tid) {
    if (block >= 64) sdata[tid] += sdata[tid + 32];
    for (int step = 16; step > 1; step /= 2) sdata[tid] = sdata[tid] + sdata[tid + step];
    if (tid >= 16) sdata[tid] = sdata[tid - 16];
    if (tid < 16) sdata[tid] += sdata[tid + 17];
}
__global__ void tree_and_scan(const float* x, float* total, float* sums) {
    __shared__ float sdata[64];
    __shared__ volatile float scanned[64];
    const unsigned tid = threadIdx.x;
    sdata[tid] = x[tid];
    __syncthreads();
    if (tid >= 32) return;
    float t = x[tid];
    scanned[tid] = 0;
    scanned[tid + 32] = t;
    for (int step = 1; step < 32; step *= 2) scanned[tid + 32] = t += scanned[tid + 32 - step];
    sums[tid] = scanned[tid + 32];
    last_warp<64>(sdata, tid);
    if (tid == 0) *total = sdata[0];
}
// Each thread adds to volatile memory while it holds a lock for which the others spin.
__global__ void add_under_lock(int* lock, volatile int* total) {
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0, 1)) continue;
        total[0] = total[0] + 1;
        __threadfence();
        atomicExch(lock, 0);
        done = true;
    }
}
// The numbers of an IntArrayRef lie in an array that has ended when it is used.
torch::Tensor of_ended_numbers(int64_t n) {
    auto shape = torch::IntArrayRef({n, 1, n + 1});
    auto shorter = torch::IntArrayRef({n + 2, n + 3});
    return torch::zeros(shape, torch::device(torch::kCUDA)).expand({n, shorter[0], n + 1});
}
void locked(torch::Tensor x) { add_under_lock<<<2, 96>>>(x.data_ptr<int>(), x.data_ptr<int>() + 1); }
void warp_steps(torch::Tensor x, torch::Tensor total, torch::Tensor sums) {
    tree_and_scan<<<1, 64>>>(x.data_ptr<float>(), total.data_ptr<float>(), sums.data_ptr<float>());
}

// Hints for a device and for a stream, and managed memory that nothing has written.
int64_t zero_managed() {
    cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync | cudaDeviceMapHost);
    int* x;
    cudaMallocManaged(&x, 64);
    cudaStreamAttrValue value{};
    value.accessPolicyWindow.base_ptr = x;
    value.accessPolicyWindow.num_bytes = 64;
    value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    int64_t sum = cudaStreamSetAttribute(nullptr, cudaStreamAttributeAccessPolicyWindow, &value) + cudaCtxResetPersistingL2Cache();
    for (int i = 0; i < 16; ++i) sum += x[i];
    return sum + cudaFree(x);
}
// A GPU captures the allocation, too.
void allocation_in_capture() {
    cudaStream_t stream;
    cudaGraph_t graph;
    void* x;
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    struct End {
        cudaStream_t stream;
        cudaGraph_t* graph;
        ~End() { cudaStreamEndCapture(stream, graph), cudaGraphDestroy(*graph), cudaStreamDestroy(stream); }
    } end{stream, &graph};
    cudaMallocAsync(&x, 16, stream);
}

// Whether the host sees that a function of a stream was called, if it asks CUDA nothing.
bool sees_callback(bool as_callback) {
    static std::atomic<int> calls;
    calls = 0;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    if (as_callback) cudaStreamAddCallback(stream, [](cudaStream_t, cudaError_t, void*) { ++calls; }, nullptr, 0);
    else cudaLaunchHostFunc(stream, [](void*) { ++calls; }, nullptr);
    for (int i = 0; i < 1000 && !calls; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    cudaSharedMemConfig banks;
    cudaDeviceSetSharedMemConfig(cudaSharedMemBankSizeEightByte), cudaDeviceGetSharedMemConfig(&banks);
    const bool seen = calls == 1 && banks == cudaSharedMemBankSizeFourByte;
    return cudaStreamDestroy(stream), seen;
}

// What the helpers of CUDA's samples look for before they define their functions, and what these ask the device.
#if !defined(__CUDA_RUNTIME_H__) || !defined(__CUDA_RUNTIME_API_H__) || !defined(__DRIVER_TYPES_H__) || !defined(CUBLAS_API_H_)
#error "a header does not say that it is there"
#endif
std::vector<int64_t> asked_by_helpers() {
    int mode = -1, clock = 0, bus = 0, can = -1;
    cudaDeviceProp p;
    cudaGetDeviceProperties(&p, 0);
    cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, 0);
    cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, 0);
    cudaDeviceGetAttribute(&bus, cudaDevAttrGlobalMemoryBusWidth, 0);
    cudaDeviceCanAccessPeer(&can, 0, 1);
    const int64_t enabled = cudaDeviceEnablePeerAccess(1, 0), last = cudaGetLastError();
    return {mode == cudaComputeModeDefault, clock > 0, bus == p.memoryBusWidth, can, enabled, last};
}

// Variables that are named as functions of libc and libm.
__device__ int step = 3;
__constant__ int pow10 = 10;
namespace mine { __managed__ int advance = 100; }
__global__ void add_named(int* out) { *out = atomicAdd(&step, 1) + pow10 + mine::advance; }
torch::Tensor named_as_in_libc() {
    auto out = torch::zeros({}, torch::dtype(torch::kInt32).device(torch::kCUDA));
    for (int i = 0; i < 2; ++i) add_named<<<1, 1>>>(out.data_ptr<int>());
    return out;
}
