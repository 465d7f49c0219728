"""Gradients: in all combinations, through views, checkpoints, autocast, and what is refused."""

import problems
import pytest
import reference
import torch
from problems import cumulative
from torch.utils.checkpoint import checkpoint

import varflash
from varflash import Unsupported, flash_attn_func, flash_attn_varlen_func


def operands(device, lengths=(5, 0, 9), heads=(4, 2), dim=32, dtype=torch.bfloat16, extra=2, grad=True):
    rows = sum(lengths) + extra
    q = torch.randn(rows, heads[0], dim, device=device, dtype=dtype)
    k, v = (torch.randn(rows, heads[1], dim, device=device, dtype=dtype) for _ in range(2))
    return [t.requires_grad_(grad) for t in (q, k, v)] + [cumulative(lengths, device)]


def test_finite_differences():
    """The only check of the gradient that no other attention is needed for; the CPU has float32, so steps are large."""
    torch.manual_seed(1)
    q, k, v, cu = operands("cpu", (4, 3), (2, 1), 8, torch.float32, 0)
    q, k, v = (t.detach().mul_(0.5).requires_grad_() for t in (q, k, v))

    def function(*tensors):
        out, lse = flash_attn_varlen_func(*tensors, cu, cu, causal=True, softcap=4.0, return_lse=True)
        return out, lse

    assert torch.autograd.gradcheck(function, (q, k, v), eps=1e-2, atol=5e-3, rtol=5e-2, fast_mode=False)


def test_only_what_needs_a_gradient(device):
    q, k, v, cu = operands(device)
    full = torch.autograd.grad(flash_attn_varlen_func(q, k, v, cu, cu, deterministic=True).sum(), (q, k, v))
    for i in range(3):
        tensors = [t.detach() for t in (q, k, v)]
        tensors[i].requires_grad_()
        (grad,) = torch.autograd.grad(flash_attn_varlen_func(*tensors, cu, cu, deterministic=True).sum(), tensors[i : i + 1])
        assert torch.equal(grad, full[i])
    with torch.no_grad():
        assert not flash_attn_varlen_func(q, k, v, cu, cu).requires_grad


def test_gradient_of_lse_alone_and_unused_rows(device):
    q, k, v, cu = operands(device)
    _, lse = flash_attn_varlen_func(q, k, v, cu, cu, return_lse=True)
    with varflash.copies(False):
        lse[:, :14].logsumexp(1).sum().backward()
    assert not v.grad.any() and q.grad[:14].any() and not q.grad[14:].any() and not k.grad[14:].any()


def test_nan_in_unused_rows_and_their_gradients(device):
    q, k, v, cu = operands(device)
    used = torch.tensor([3, 0, 9], dtype=torch.int32, device=device)
    options = dict(seqused_q=used, seqused_k=used, deterministic=True)
    clean = torch.autograd.grad(flash_attn_varlen_func(q, k, v, cu, cu, **options)[:3].sum(), (q, k, v))
    dirty = [t.detach().clone() for t in (q, k, v)]
    for t in dirty:
        t[3:5] = t[14:] = torch.nan
        t.requires_grad_()
    out = flash_attn_varlen_func(*dirty, cu, cu, **options)
    dout = torch.zeros_like(out)
    dout[:3] = 1
    dout[3:5] = dout[14:] = torch.nan
    assert all(torch.equal(a, b) for a, b in zip(clean, torch.autograd.grad(out, dirty, dout)))
    assert not out[3:5].any() and not out[14:].any()


@pytest.mark.parametrize("view", ["sum", "row", "transposed", "strided", "sliced"])
def test_gradients_of_any_stride(device, view):
    q, k, v, cu = operands(device)
    out = flash_attn_varlen_func(q, k, v, cu, cu, deterministic=True)
    dout = {
        "sum": torch.ones((), device=device, dtype=out.dtype).expand_as(out),
        "row": torch.randn(32, device=device, dtype=out.dtype).expand_as(out),
        "transposed": torch.randn(16, 32, 4, device=device, dtype=out.dtype).transpose(1, 2),
        "strided": torch.randn(16, 4, 64, device=device, dtype=out.dtype)[..., ::2],
        "sliced": torch.randn(16, 8, 48, device=device, dtype=out.dtype)[:, 2:6, 8:40],
    }[view]
    got = torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(got, torch.autograd.grad(out, (q, k, v), dout.contiguous())))


def test_a_gradient_of_sum_copies_one_row_only(device):
    from varflash._attention import _with_contiguous_rows

    dout = torch.ones((), device=device).expand(1000, 8, 64)
    small = _with_contiguous_rows(dout, "dout")
    assert small.untyped_storage().nbytes() == 64 * 4 and torch.equal(small, dout)


def test_empty_operands_of_any_stride_get_gradients(device):
    q, k, v, cu = operands(device, (), extra=0)
    across = [t.detach().transpose(1, 2).contiguous().transpose(1, 2)[:, :, ::2].requires_grad_() for t in (q, k, v)]
    out = flash_attn_varlen_func(*across, cu, cu)
    assert all(g.shape == (0, *t.shape[1:]) for g, t in zip(torch.autograd.grad(out.sum(), across), across))


def test_packed_projection(device):
    """q, k and v as views of one linear layer's output."""
    layer = torch.nn.Linear(64, 3 * 64, device=device, dtype=torch.bfloat16)
    x, cu = torch.randn(14, 64, device=device, dtype=torch.bfloat16), cumulative((5, 0, 9), device)

    def step(contiguous):
        q, k, v = layer(x).view(14, 3, 2, 32).unbind(1)
        if contiguous:
            q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        loss = flash_attn_varlen_func(q, k, v, cu, cu, causal=True, deterministic=True).float().square().sum()
        return torch.autograd.grad(loss, layer.weight)[0]

    assert torch.equal(step(False), step(True))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(device, reentrant):
    q, k, v, cu = operands(device)

    def block(q, k, v):
        return flash_attn_varlen_func(q * 2, k, v, cu, cu, causal=True, deterministic=True).square()

    plain = torch.autograd.grad(block(q, k, v).sum(), (q, k, v))
    checkpoint(block, q, k, v, use_reentrant=reentrant).sum().backward()
    assert all(torch.equal(a, b.grad) for a, b in zip(plain, (q, k, v)))


def test_selective_checkpointing_sees_the_operator(device):
    module = torch.utils.checkpoint
    if not hasattr(module, "CheckpointPolicy"):
        pytest.skip("this torch has no selective checkpointing")
    CheckpointPolicy, create_selective_checkpoint_contexts = module.CheckpointPolicy, module.create_selective_checkpoint_contexts

    q, k, v, cu = operands(device)
    seen = []

    def policy(context, operator, *args, **kwargs):
        seen.append(operator)
        return CheckpointPolicy.MUST_SAVE if operator == torch.ops.varflash.forward.default else CheckpointPolicy.PREFER_RECOMPUTE

    def block(q, k, v):
        return flash_attn_varlen_func(q * 2, k, v, cu, cu, deterministic=True).square()

    plain = torch.autograd.grad(block(q, k, v).sum(), (q, k, v))
    contexts = lambda: create_selective_checkpoint_contexts(policy)  # noqa: E731
    checkpoint(block, q, k, v, use_reentrant=False, context_fn=contexts).sum().backward()
    assert torch.ops.varflash.forward.default in seen
    assert all(torch.equal(a, b.grad) for a, b in zip(plain, (q, k, v)))


def test_autocast(device):
    q, k, v, cu = operands(device, dtype=torch.float32)
    with torch.autocast(device, torch.bfloat16):
        out = flash_attn_varlen_func(q, k, v, cu, cu)
        mixed = flash_attn_varlen_func(q.bfloat16(), k, v, cu, cu)
    assert out.dtype == torch.bfloat16 and torch.equal(out, mixed)
    out.sum().backward()
    assert q.grad.dtype == torch.float32 and q.grad[:14].any()
    if device == "cpu":
        assert flash_attn_varlen_func(q, k, v, cu, cu).dtype == torch.float32


def test_no_second_derivative_and_no_stale_values(device):
    q, k, v, cu = operands(device)
    (dq,) = torch.autograd.grad(flash_attn_varlen_func(q, k, v, cu, cu).sum(), q, create_graph=True)
    with pytest.raises(Unsupported, match="second derivative"):
        (dq * q).sum().backward()
    out = flash_attn_varlen_func(q, k, v, cu, cu)
    cu += 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_transforms_are_refused(device):
    q, k, v, _ = (t.detach()[None] if t.dim() == 3 else t for t in operands(device))
    with pytest.raises(Unsupported, match="torch.func"):
        torch.func.grad(lambda q: flash_attn_func(q, k, v).sum())(q)
    with pytest.raises(Unsupported, match="torch.func"):
        torch.func.vmap(flash_attn_func)(q[None], k[None], v[None])
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        with pytest.raises(Unsupported, match="dual"):
            flash_attn_func(dual, k, v)
        flash_attn_func(q, k, v)


def test_deterministic_algorithms(device):
    q, k, v, cu = operands(device, (200, 150), (4, 1))
    torch.use_deterministic_algorithms(True)
    try:
        runs = [torch.autograd.grad(flash_attn_varlen_func(q, k, v, cu, cu).sum(), (q, k, v)) for _ in range(5)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for run in runs for a, b in zip(run, runs[0]))


def test_empty_sequences_in_a_training_step(device):
    """Lengths q [0, 0, 1023], k [0, 1, 2045], 2046 rows each, 32 heads of 128: ends, equal bits, zeros where nothing lives."""
    heads = 32 if device == "cuda" else 2
    q, k, v = (torch.randn(2046, heads, 128, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    cu_q, cu_k = cumulative([0, 0, 1023], device), cumulative([0, 1, 2045], device)
    first = None
    for _ in range(20 if device == "cuda" else 2):
        out = flash_attn_varlen_func(q, k, v, cu_q, cu_k, deterministic=True)
        grads = torch.autograd.grad(out.square().sum(), (q, k, v))
        first = first or (out, *grads)
        assert all(torch.equal(a, b) for a, b in zip(first, (out, *grads)))
    dq, dk, dv = grads
    assert not dq[1023:].any() and not dk[0].any() and not dv[0].any() and all(g.isfinite().all() for g in grads)


def test_reference_is_sdpa():
    """The float64 reference of all tests beside PyTorch's own attention in float64, values and gradients, where that knows the problem."""
    for seed in range(120):
        problem, (q, k, v, dout, _) = problems.draw(seed, "cpu")
        if problem["softcap"]:
            continue
        group, mask = q.shape[-2] // k.shape[-2], (problem["causal"], problem["window_size"])
        q, k, v, dout = (t.reshape(-1, *t.shape[-2:]) for t in (q, k, v, dout))
        leaves = reference.leaves((q, k, v), torch.float64)
        seen = reference.visible(len(q), len(k), *mask)
        rows = seen.any(-1)
        if not rows.any():
            continue
        scale = problem["softmax_scale"] or q.shape[-1] ** -0.5
        ours, _ = reference.one(*leaves, seen, scale, 0.0)
        heads_first = [t.transpose(0, 1) for t in (leaves[0][rows], *(t.repeat_interleave(group, 1) for t in leaves[1:]))]
        theirs = torch.nn.functional.scaled_dot_product_attention(*heads_first, attn_mask=seen[rows], scale=scale).transpose(0, 1)
        torch.testing.assert_close(ours[rows], theirs)
        grads = [torch.autograd.grad(o, leaves, dout[rows].double()) for o in (ours[rows], theirs)]
        torch.testing.assert_close(*grads)


def test_reference_judges_itself():
    """A wrong gradient does not pass."""
    torch.manual_seed(2)
    q, k, v, cu = operands("cpu", grad=False)

    def wrong(q, k, v):
        return flash_attn_varlen_func(q, k * 1.05, v, cu, cu, return_lse=True)

    with pytest.raises(AssertionError, match="error"):
        reference.check(wrong, q, k, v, torch.randn_like(q), cu_q=cu, cu_k=cu)
