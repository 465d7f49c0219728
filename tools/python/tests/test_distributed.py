"""DDP and FSDP2 around a module that attends: two processes on the CPU, on as many of two GPUs as there are."""

import pytest
import torch
import torch.distributed as dist
from problems import cumulative

from varflash import flash_attn_varlen_func


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.out = torch.nn.Linear(64, 192), torch.nn.Linear(64, 64)

    def forward(self, x, cu):
        q, k, v = self.project(x).view(-1, 3, 2, 32).unbind(1)
        return self.out(flash_attn_varlen_func(q, k, v, cu, cu, causal=True, deterministic=True).flatten(1))


def gradients(model, x, cu):
    model.zero_grad()
    model(x, cu).float().square().mean().backward()
    return {name.removeprefix("module."): p.grad.clone() for name, p in model.named_parameters()}


def wrapped(kind, model, device, world):
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=dist.init_device_mesh(device, (world,)))
    return model


def work(rank, world, device, kinds, folder):
    """One process. Each has a batch of its own; the gradients are the mean of what all batches give one plain model."""
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    try:
        torch.manual_seed(0)
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        plain = Block().to(device, dtype)
        batches = [(torch.randn(14, 64).to(device, dtype), cumulative([5 - r, 0, 9 + r], device)) for r in range(world)]
        each = [gradients(plain, *batch) for batch in batches]
        for kind in kinds:
            model = Block().to(device, dtype)
            model.load_state_dict(plain.state_dict())
            for name, grad in gradients(wrapped(kind, model, device, world), *batches[rank]).items():
                grad = grad.full_tensor() if hasattr(grad, "full_tensor") else grad
                mean = torch.stack([g[name].double() for g in each]).mean(0)
                step = torch.finfo(dtype).eps * mean.abs().max().item()
                torch.testing.assert_close(grad.double(), mean, atol=4 * step, rtol=0, msg=lambda text: f"{kind}, {name}: {text}")
    finally:
        dist.destroy_process_group()


def test_gradients_are_the_mean_over_processes(device, tmp_path):
    if not dist.is_available():
        pytest.skip("torch without torch.distributed")
    kinds = ["ddp"] + ["fsdp2"] * hasattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard")
    world = 2 if device == "cpu" else min(2, torch.cuda.device_count())
    if world == 1:
        work(0, 1, device, kinds, tmp_path)
    else:
        torch.multiprocessing.spawn(work, (world, device, kinds, tmp_path), world)
