"""The layouts of inputs: KernelBench moves them to the device, unless get_inputs() has made them there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernel_harness.problem.distributions import OWN
from kernel_harness.problem.problem import load

SOURCE = """
import torch
MADE = torch.randn(6, 8, device="cuda")

class Model(torch.nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    {body}
"""
# The body of get_inputs(), and the strides and offsets of the tensors.
ON_CUDA = [
    ("return [torch.randn(6, 8, device='cuda')[:, ::2]]", [((8, 2), 0)]),
    ("return [torch.randn(6, 8, device=torch.device('cuda:0'))[2:, 1:]]", [((8, 1), 17)]),
    ("return [torch.randn(6, 1).cuda().expand(6, 4)]", [((1, 0), 0)]),
    ("return [torch.randn(6, 8).to('cuda').T[1:3]]", [((1, 8), 1)]),
    ("x = torch.randn(20).cuda(); return [x.as_strided((4, 5), (3, 1), 2)]", [((3, 1), 2)]),
    ("x = torch.randn(6, 8).cuda(); return [(x + 1)[:, 1:], torch.zeros_like(x)[3:]]", [((8, 1), 1), ((8, 1), 24)]),
    ("x = torch.randn(6, 8).cuda(); return [torch.randn(4, 4).to(x)[:, 2:]]", [((4, 1), 2)]),
    ("return [{'x': [torch.randn(6, 8).cuda()[:, ::2]]}]", [((8, 2), 0)]),
    ("return [MADE[:, ::2]]", [((8, 2), 0)]),
    ("with torch.device('cuda'): return [torch.randn(6, 8)[:, ::2]]", [((8, 2), 0)]),
]
MOVED = [
    ("return [torch.randn(6, 8)[:, ::2]]", [((4, 1), 0)]),
    ("return [torch.randn(6, 8)[:, ::2].cuda()]", [((4, 1), 0)]),
    ("return [torch.randn(6, 1).expand(6, 4).to('cuda')]", [((4, 1), 0)]),
    ("return [torch.randn(6, 8).T]", [((1, 8), 0)]),
    ("return [torch.randn(6, 8)[3:]]", [((8, 1), 0)]),
    ("return [torch.randn(6, 8, 4).permute(2, 0, 1)[::2]]", [((1, 16, 2), 0)]),
    ("return [torch.randn(6, 8, device='cuda')[:, ::2].cpu()]", [((4, 1), 0)]),
    ("return [torch.randn(6, 8).cuda().mul(2).to('cpu')[:, ::2]]", [((4, 1), 0)]),
    ("x = torch.randn(6, 8).cuda(); return [torch.ones(6, 8, device='cpu')[:, ::2]]", [((4, 1), 0)]),
]


def tensors(body: str, folder: Path, distribution: str = OWN) -> list[torch.Tensor]:
    (folder / "p.py").write_text(SOURCE.format(body=body))
    inputs = load("p", folder / "p.py").on(emulated=True).inputs(1, distribution)
    return inputs[0]["x"] if isinstance(inputs[0], dict) else inputs


@pytest.mark.parametrize("distribution", [OWN, "normal", "sparse"])
@pytest.mark.parametrize(("body", "wanted"), ON_CUDA)
def test_what_get_inputs_makes_on_the_device_stays_as_it_is(body, wanted, distribution, tmp_path):
    found = tensors(body, tmp_path, distribution)
    assert [(tensor.stride(), tensor.storage_offset()) for tensor in found] == wanted


@pytest.mark.parametrize("distribution", [OWN, "normal"])
@pytest.mark.parametrize(("body", "wanted"), MOVED)
def test_what_get_inputs_makes_on_the_host_has_the_strides_of_a_copy(body, wanted, distribution, tmp_path):
    found = tensors(body, tmp_path, distribution)
    assert [(tensor.stride(), tensor.storage_offset()) for tensor in found] == wanted


@pytest.mark.parametrize("distribution", [OWN, "normal", "scaled"])
@pytest.mark.parametrize(
    ("body", "storages"),
    [
        ("q, k = torch.randn(64, 8, device='cuda').chunk(2, -1); return [q, k]", 1),
        ("x = torch.randn(64, 8).cuda(); return [x, x.T]", 1),
        ("x = torch.randn(64, 8); return [x, x.T]", 2),
        ("x = torch.randn(64, 8); return [x.cuda(), x.cuda()]", 2),
    ],
)
def test_tensors_share_a_storage_if_they_do_on_the_device(body, storages, distribution, tmp_path):
    found = tensors(body, tmp_path, distribution)
    assert len({tensor.untyped_storage().data_ptr() for tensor in found}) == storages


def test_a_transposed_view_has_the_numbers_of_the_tensor_in_each_distribution(tmp_path):
    one, other = tensors("x = torch.randn(64, 8).cuda(); return [x, x.T]", tmp_path, "normal")
    assert torch.equal(one, other.T)


def test_windows_that_overlap_keep_their_numbers_in_each_distribution(tmp_path):
    body = "return [torch.arange(70.).cuda().sin().as_strided((64, 5), (1, 1))]"
    own, varied = (tensors(body, tmp_path, each)[0] for each in (OWN, "normal"))
    assert torch.equal(own, varied)
