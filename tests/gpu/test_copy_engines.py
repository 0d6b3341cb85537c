"""Copy engines and the host work while a kernel of the judge keeps the GPU. A candidate must gain nothing by them."""

from __future__ import annotations

import pytest
import torch
from support.on_a_gpu import judged

from kernel_harness.core.status import Status
from kernel_harness.results.record import Result

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine"),
]

ONE_HOT = """
import threading, torch

N, C = 1024, 4096


class Model(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, index):
        return torch.nn.functional.one_hot(index, self.classes).float()


def get_inputs():
    return [torch.randint(0, C, (N,))]


def get_init_inputs():
    return [C]


class ModelNew(torch.nn.Module):
    side = None

    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, index):
        shape = len(index), self.classes
        if self.side is None:
            self.side, self.out = torch.cuda.Stream(), torch.zeros(shape, device="cuda")
            self.zeros = torch.zeros(shape).pin_memory()
{body}
"""
ZEROED = "        return torch.zeros(shape, device='cuda').scatter_(1, index[:, None], 1.0)"
UPLOADED = """
        with torch.cuda.stream(self.side):  # waits for nothing, so it runs while the judge writes the inputs
            self.out.copy_(self.zeros, non_blocking=True)
"""
WITHOUT_JOIN = f"{UPLOADED}        return self.out.scatter_(1, index[:, None], 1.0)"
WITH_JOIN = f"""{UPLOADED}
        torch.cuda.current_stream().wait_stream(self.side)
        return self.out.scatter_(1, index[:, None], 1.0)
"""
AHEAD = """
        with torch.cuda.stream(self.side):  # zeros for the next call, while nobody measures
            self.spare = torch.empty_like(self.out)
            self.spare.copy_(self.zeros, non_blocking=True)
        self.out, spare = self.spare, self.out
        return spare.scatter_(1, index[:, None], 1.0)
"""
LATE = """
        done = torch.cuda.Event()
        done.record()
        out, host = torch.empty(shape, device="cuda"), self.zeros

        def finish():
            done.synchronize()
            at = index.cpu()
            host.zero_()[torch.arange(len(at)), at] = 1.0
            with torch.cuda.stream(self.side):
                out.copy_(host, non_blocking=True)

        threading.Thread(target=finish).start()
        return out
"""
BODIES = {
    "zeroed": ZEROED, "uploaded_without_join": WITHOUT_JOIN, "uploaded_with_join": WITH_JOIN, "ahead": AHEAD,
    "by_the_host_later": LATE,
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    path = tmp_path_factory.mktemp("one_hot") / "one_hot.py"
    path.write_text(ONE_HOT.format(body=ZEROED))
    return judged(path, {name: ONE_HOT.format(body=body) for name, body in BODIES.items()}, budget_s=8)


def test_an_honest_kernel_passes(results: dict[str, Result]) -> None:
    result = results["zeroed"]
    assert result.status is Status.PASSED, result.reason
    assert result.measurement is not None and not result.measurement.waits_for_the_device


def test_a_right_kernel_that_uploads_a_part_of_its_output_passes_with_the_time_of_the_upload(
    results: dict[str, Result],
) -> None:
    result = results["uploaded_with_join"]
    assert result.status is Status.PASSED, result.reason
    assert result.timing is not None and result.timing.time_ms > 0.2  # 16 MB at no more than 64 GB/s


@pytest.mark.parametrize("name", ["uploaded_without_join", "ahead", "by_the_host_later"])
def test_work_before_or_after_the_call_gains_nothing(name: str, results: dict[str, Result]) -> None:
    result, honest = results[name], results["zeroed"].timing
    if result.status is Status.PASSED:
        assert result.timing is not None and honest is not None
        assert result.timing.time_ms > 0.98 * honest.time_ms
    else:
        assert result.status in (Status.WRONG_VALUES, Status.NONDETERMINISTIC, Status.CHEATED), result.reason
