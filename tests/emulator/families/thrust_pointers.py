"""Edges to adjacency with thrust on raw pointers: sort by key, unique, reduce by key, search, gather and scatter."""

import torch

CPP = "std::vector<torch::Tensor> thrust_pointers(torch::Tensor keys, torch::Tensor values, int64_t vertices);"
CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/execution_policy.h>
#include <thrust/fill.h>
#include <thrust/for_each.h>
#include <thrust/gather.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scatter.h>
#include <thrust/sort.h>
#include <thrust/tuple.h>
#include <thrust/unique.h>

struct AddTo {
    float* totals;
    template <class Pair>
    __device__ void operator()(Pair pair) const { atomicAdd(&totals[thrust::get<0>(pair)], thrust::get<1>(pair)); }
};

std::vector<torch::Tensor> thrust_pointers(torch::Tensor keys, torch::Tensor values, int64_t vertices) {
    auto policy = thrust::cuda::par.on(at::cuda::getCurrentCUDAStream());
    const int n = keys.numel();
    auto k = keys.clone(), v = values.clone();
    int* key = k.data_ptr<int>();
    float* value = v.data_ptr<float>();
    thrust::stable_sort_by_key(policy, key, key + n, value);

    auto offsets = torch::empty({vertices + 1}, k.options());
    auto numbers = thrust::make_counting_iterator(0);
    thrust::lower_bound(policy, key, key + n, numbers, numbers + vertices + 1, offsets.data_ptr<int>());

    auto present = torch::full({vertices}, -1, k.options()), degree = torch::zeros({vertices}, k.options());
    auto ends = thrust::reduce_by_key(policy, key, key + n, thrust::make_constant_iterator(1), present.data_ptr<int>(), degree.data_ptr<int>());
    const int distinct = ends.first - present.data_ptr<int>();

    auto spread = torch::zeros({vertices}, k.options());
    thrust::scatter(thrust::device, degree.data_ptr<int>(), degree.data_ptr<int>() + distinct, present.data_ptr<int>(), spread.data_ptr<int>());
    auto again = torch::empty({n}, k.options());
    thrust::gather(thrust::device, key, key + n, spread.data_ptr<int>(), again.data_ptr<int>());

    auto totals = torch::empty({vertices}, v.options());
    thrust::fill(thrust::device, totals.data_ptr<float>(), totals.data_ptr<float>() + vertices, 0.f);
    auto pairs = thrust::make_zip_iterator(thrust::make_tuple(key, value));
    thrust::for_each(thrust::device, pairs, pairs + n, AddTo{totals.data_ptr<float>()});
    thrust::sort(thrust::device, value, value + n, thrust::greater<float>());
    return {k, v, offsets, present, spread, again, totals};
}
"""


def cases():
    return [(torch.randint(0, 9, (n,), dtype=torch.int32), torch.randn(n), 9) for n in (1, 100)]


def answer(keys, values, vertices):
    order = keys.argsort(stable=True)
    counts = torch.bincount(keys, minlength=vertices).int()
    present = torch.full((vertices,), -1, dtype=torch.int32)
    distinct = keys.unique()
    present[: len(distinct)] = distinct
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
    totals = torch.zeros(vertices).index_add(0, keys.long(), values)
    sorted_values = values.sort(descending=True).values
    return [keys[order], sorted_values, offsets, present, counts, counts[keys[order].long()], totals]
