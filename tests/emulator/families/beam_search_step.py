"""One step of beam search: scores of all continuations in a min-heap per thread, merged by one warp."""

import torch

CPP = "std::vector<torch::Tensor> beam_search_step(torch::Tensor scores, torch::Tensor logits, torch::Tensor finished);"
CUDA = r"""
#include <torch/extension.h>
#include <cmath>

constexpr int kBeams = 4, kEnd = 0;

struct Candidate {
    float score;
    int place;
};
__device__ __forceinline__ bool better(Candidate a, Candidate b) { return a.score > b.score || (a.score == b.score && a.place < b.place); }

__global__ void step_kernel(const float* __restrict__ scores, const float* __restrict__ logits, const bool* __restrict__ finished,
                            float* __restrict__ out, int* __restrict__ parents, int* __restrict__ tokens, int vocabulary) {
    const int batch = blockIdx.x, lane = threadIdx.x;
    __shared__ float norms[kBeams];
    for (int b = 0; b < kBeams; ++b) {
        const float* row = logits + (batch * kBeams + b) * vocabulary;
        float peak = -INFINITY, sum = 0.f;
        for (int i = lane; i < vocabulary; i += 32) {
            const float larger = fmaxf(peak, row[i]);
            sum = sum * expf(peak - larger) + expf(row[i] - larger);
            peak = larger;
        }
        for (int offset = 16; offset; offset /= 2) {
            const float other_peak = __shfl_xor_sync(~0u, peak, offset), other_sum = __shfl_xor_sync(~0u, sum, offset);
            const float larger = fmaxf(peak, other_peak);
            const float mine = peak == -INFINITY ? 0.f : sum * expf(peak - larger), theirs = other_peak == -INFINITY ? 0.f : other_sum * expf(other_peak - larger);
            sum = mine + theirs;
            peak = larger;
        }
        if (lane == 0) norms[b] = peak + logf(sum);
    }
    __syncwarp();
    Candidate best[kBeams];
    for (auto& b : best) b = {-INFINITY, 0x7fffffff};
    for (int i = lane; i < kBeams * vocabulary; i += 32) {
        const int beam = i / vocabulary, token = i % vocabulary;
        float step = logits[(batch * kBeams + beam) * vocabulary + token] - norms[beam];
        if (finished[batch * kBeams + beam]) step = token == kEnd ? 0.f : -INFINITY;
        Candidate now{scores[batch * kBeams + beam] + step, i};
        for (auto& b : best)
            if (better(now, b)) {
                const Candidate swapped = b;
                b = now;
                now = swapped;
            }
    }
    for (int k = 0, taken = 0; k < kBeams; ++k) {
        Candidate top = taken < kBeams ? best[taken] : Candidate{-INFINITY, 0x7fffffff};
        for (int offset = 16; offset; offset /= 2) {
            const Candidate other{__shfl_xor_sync(~0u, top.score, offset), __shfl_xor_sync(~0u, top.place, offset)};
            if (better(other, top)) top = other;
        }
        if (taken < kBeams && best[taken].place == top.place) ++taken;
        if (lane == 0) {
            out[batch * kBeams + k] = top.score;
            parents[batch * kBeams + k] = top.place / vocabulary;
            tokens[batch * kBeams + k] = top.place % vocabulary;
        }
    }
}

std::vector<torch::Tensor> beam_search_step(torch::Tensor scores, torch::Tensor logits, torch::Tensor finished) {
    TORCH_CHECK(scores.size(1) == kBeams);
    auto out = torch::empty_like(scores), parents = torch::empty(scores.sizes(), scores.options().dtype(torch::kInt)), tokens = torch::empty_like(parents);
    step_kernel<<<scores.size(0), 32>>>(scores.data_ptr<float>(), logits.data_ptr<float>(), finished.data_ptr<bool>(), out.data_ptr<float>(),
                                        parents.data_ptr<int>(), tokens.data_ptr<int>(), logits.size(2));
    return {out, parents, tokens};
}
"""


def cases():
    return [
        (torch.randn(3, 4), torch.randn(3, 4, 50), torch.tensor([[False] * 4, [True, False] * 2, [False] * 3 + [True]]))
    ]


def answer(scores, logits, finished):
    steps = torch.log_softmax(logits, -1)
    end = torch.full_like(steps, -torch.inf)
    end[..., 0] = 0
    total = (scores[..., None] + torch.where(finished[..., None], end, steps)).flatten(1)
    top = total.topk(4)
    return [top.values, (top.indices // 50).int(), (top.indices % 50).int()]
