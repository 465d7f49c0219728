"""DDP and FSDP2 around a module that attends: one process is enough, for what counts is that hooks and shards meet no surprise."""

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


@pytest.fixture
def group(device, tmp_path):
    if not dist.is_available():
        pytest.skip("torch without torch.distributed")
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield device
    dist.destroy_process_group()


def gradients(model, x, cu):
    model(x, cu).float().square().sum().backward()
    return {name.removeprefix("module."): p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("wrapper", ["ddp", "fsdp2"])
def test_wrapped(group, wrapper):
    device = group
    x, cu = torch.randn(14, 64, device=device, dtype=torch.bfloat16), cumulative([5, 0, 9], device)
    plain, wrapped = (Block().to(device, torch.bfloat16) for _ in range(2))
    wrapped.load_state_dict(plain.state_dict())
    if wrapper == "ddp":
        wrapped = torch.nn.parallel.DistributedDataParallel(wrapped)
    else:
        fsdp = pytest.importorskip("torch.distributed.fsdp")
        if not hasattr(fsdp, "fully_shard"):
            pytest.skip("this torch has no FSDP2")
        fsdp.fully_shard(wrapped, mesh=dist.init_device_mesh(device, (1,)))
    expected, got = gradients(plain, x, cu), gradients(wrapped, x, cu)
    for name, grad in expected.items():
        other = got[name]
        assert torch.equal(grad, other.full_tensor() if hasattr(other, "full_tensor") else other), name
