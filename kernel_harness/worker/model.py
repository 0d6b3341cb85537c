"""Builds the model of a worker's candidate, and sums up its parameters, which the judge compares."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from kernel_harness.device import WorkerDevice
from kernel_harness.ipc import tensors
from kernel_harness.ipc.messages import Made, Make
from kernel_harness.problem.varied_parameters import varied


def built(kind: Any, request: Make, memory: torch.Tensor, device: WorkerDevice) -> tuple[Any, Made]:
    """Seeds torch's generator as for the reference model, and builds a model of the class `kind` on the device.

    `memory`, a flat uint8 tensor, holds the constructor's inputs. Returns the model and the reply to `request`. If the
    constructor fails, the exception is raised, unless `request.varied`: the constructor may have checked the parameters
    that it sets. The model is None then.
    """
    layout = request.inputs
    inputs = tensors.unflatten(layout.structure, [leaf.view(memory).clone() for leaf in layout.leaves])
    torch.manual_seed(request.seed)
    try:
        with torch.no_grad(), varied(request.seed) if request.varied else nullcontext():
            model = kind(*inputs)
        made = Made(_sums(model, request))
    except Exception:
        if request.varied:
            return None, Made()
        raise
    if isinstance(model, torch.nn.Module):
        model = model.to(device.torch_device)
    if request.compile_mode:
        model = torch.compile(model, mode=request.compile_mode)
    device.synchronize()
    return model, made


def _sums(model: Any, request: Make) -> tuple[int | None, ...]:
    state = model.state_dict() if isinstance(model, torch.nn.Module) else {}
    if request.values:
        return tuple(tensors.value_sums(state).values())
    sums = tensors.checksums({name: state[name] for name in request.names if name in state})
    return tuple(map(sums.get, request.names))
