"""torch.compile, export and the operators: no graph break, no recompilation by length, the same bits."""

import pytest
import torch
from problems import cumulative
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

from varflash import flash_attn_func, flash_attn_varlen_func, varlen_attn

BACKEND = "inductor" if torch.cuda.is_available() else "aot_eager"


def operands(device, lengths, heads=(4, 2), dim=32, grad=True, dtype=torch.bfloat16):
    rows = sum(lengths)
    q = torch.randn(rows, heads[0], dim, device=device, dtype=dtype)
    k, v = (torch.randn(rows, heads[1], dim, device=device, dtype=dtype) for _ in range(2))
    return [t.requires_grad_(grad) for t in (q, k, v)] + [cumulative(lengths, device)]


def equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def test_no_recompilation_by_length(device):
    counter = CompileCounterWithBackend(BACKEND)

    def step(q, k, v, cu, longest):
        out, lse, _ = flash_attn_varlen_func(q, k, v, cu, cu, longest, longest, causal=True, deterministic=True, return_attn_probs=True)
        return out, lse

    compiled, first = torch.compile(step, fullgraph=True, dynamic=True, backend=counter), 0
    for lengths in ([5, 9], [3, 0, 8], [40], [7, 7, 7, 7, 7], [65, 2]):
        q, k, v, cu = operands(device, lengths)
        results = []
        for function in (step, compiled):
            out, lse = function(q, k, v, cu, max(lengths))
            results.append([out, lse, *torch.autograd.grad(out.float().square().sum() + lse.sum(), (q, k, v))])
        assert equal(*results), lengths
        first = first or counter.frame_count
    assert counter.frame_count == first


def test_mark_dynamic(device):
    """Without dynamic=True the second length makes the graph dynamic, and no later one recompiles."""
    counter = CompileCounterWithBackend(BACKEND)
    compiled = torch.compile(flash_attn_varlen_func, fullgraph=True, backend=counter)
    for lengths in ([5, 9], [30, 8], [40, 3], [7, 7, 7], [2, 2, 2, 9]):
        q, k, v, cu = operands(device, lengths, grad=False)
        assert torch.equal(compiled(q, k, v, cu, cu), flash_attn_varlen_func(q, k, v, cu, cu))
    assert counter.frame_count <= 3


def test_other_functions(device):
    q, k, v, cu = operands(device, [5, 9], heads=(2, 2))
    batched = [t.detach()[None].requires_grad_() for t in (q, k, v)]
    for function, arguments in [
        (flash_attn_func, (*batched,)),
        (varlen_attn, (q, k, v, cu, cu, 9, 9)),
        (lambda *a: flash_attn_varlen_func(*a, window_size=(3, 1), softcap=5.0, seqused_k=cu[1:] - cu[:-1]), (q, k, v, cu, cu)),
        (lambda q, k, v: flash_attn_func(q[..., :27], k[..., :27], v[..., :30]), (*batched,)),
    ]:
        compiled = torch.compile(function, fullgraph=True, backend=BACKEND)
        assert torch.equal(compiled(*arguments), function(*arguments))


def test_checkpointing_compiled(device):
    q, k, v, cu = operands(device, [5, 0, 9])

    def block(q, k, v):
        return flash_attn_varlen_func(q * 2, k, v, cu, cu, causal=True, deterministic=True).float()

    def step(q, k, v):
        return checkpoint(block, q, k, v, use_reentrant=False).square()

    compiled = torch.compile(step, fullgraph=True, backend=BACKEND)
    results = [[out, *torch.autograd.grad(out.sum(), (q, k, v))] for out in (f(q, k, v) for f in (step, compiled))]
    assert equal(*results)


def test_autocast_compiled(device):
    q, k, v, cu = operands(device, [5, 9], dtype=torch.float32)
    weight = torch.randn(32, 32, device=device, requires_grad=True)

    def step(q, k, v):
        with torch.autocast(device, torch.bfloat16):
            return flash_attn_varlen_func(q @ weight, k, v, cu, cu)

    out = torch.compile(step, fullgraph=True, backend=BACKEND)(q, k, v)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert weight.grad.isfinite().all() and weight.grad.any()


@pytest.mark.parametrize("options", [(0.0, 0.0, False, -1, -1, True), (0.2, 4.0, True, 7, -1, True)])
def test_opcheck(device, options):
    q, k, v, cu = operands(device, [5, 0, 9])
    used = torch.tensor([4, 0, 9], dtype=torch.int32, device=device)
    empty = operands(device, [])
    for arguments in [
        (q, k, v, cu, cu, None, None),
        (q, k, v, cu, cu, used, used),
        (q[None], k[None], v[None], None, None, None, None),
        (*empty[:3], empty[3], empty[3], None, None),
    ]:
        torch.library.opcheck(torch.ops.varflash.forward.default, (*arguments, *options))
    out, lse = torch.ops.varflash.forward(q, k, v, cu, cu, used, used, *options)
    saved = [t.detach() for t in (q, k, v, out, lse)]
    for dlse in (None, torch.randn_like(lse)):
        torch.library.opcheck(torch.ops.varflash.backward.default, (torch.randn_like(saved[3]), dlse, *saved, cu, cu, used, used, *options))


def test_operator_gradients_equal_eager(device):
    q, k, v, cu = operands(device, [5, 0, 9])
    eager = flash_attn_varlen_func(q, k, v, cu, cu, deterministic=True, return_lse=True)
    operator = torch.ops.varflash.forward(q, k, v, cu, cu, None, None, 0.0, 0.0, False, -1, -1, True)
    assert equal(eager, operator)
    for pick in (lambda o, s: o.sum(), lambda o, s: s.square().sum(), lambda o, s: o.square().sum() + s.sum()):
        grads = [torch.autograd.grad(pick(*pair), (q, k, v), retain_graph=True, allow_unused=True) for pair in (eager, operator)]
        assert equal(*grads)


def test_export(device):
    class Module(torch.nn.Module):
        def forward(self, q, k, v, cu):
            return flash_attn_varlen_func(q, k, v, cu, cu, causal=True)

    q, k, v, cu = operands(device, [5, 9], grad=False)
    rows, batch = torch.export.Dim("rows", min=2, max=1 << 20), torch.export.Dim("batch", min=2, max=1 << 16)
    shapes = {"q": {0: rows}, "k": {0: rows}, "v": {0: rows}, "cu": {0: batch}}
    program = torch.export.export(Module(), (q, k, v, cu), dynamic_shapes=shapes)
    q, k, v, cu = operands(device, [3, 8, 20, 1], grad=False)
    assert torch.equal(program.module()(q, k, v, cu), Module()(q, k, v, cu))


def test_fake_tensors_and_meta(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    q, k, v, cu = operands(device, [5, 9])
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(t) for t in (q, k, v, cu)]
        out, lse = flash_attn_varlen_func(*fake, fake[3], return_lse=True)
    assert out.shape == q.shape and lse.shape == (4, 14) and out.device.type == device
    assert flash_attn_func(*(t[None].to("meta") for t in (q, k, v))).shape == (1, 14, 4, 32)
