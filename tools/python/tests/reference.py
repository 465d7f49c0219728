"""Attention in float64 by plain matrix products, sequence by sequence, and the tolerance that follows from 16-bit arithmetic.

The reference is differentiable, so gradients come from autograd. Nothing here knows varflash.
"""

import math

import torch


def spans(cu, used, count, rows):
    """(first row, used rows) of each sequence. Without cu: the slots of a batch."""
    if cu is None:
        return [(b * rows, rows if used is None else int(used[b])) for b in range(count)]
    starts = [int(x) for x in cu]
    return [(a, (b - a) if used is None else int(u)) for a, b, u in zip(starts, starts[1:], [0] * count if used is None else used)]


def visible(rows_q, rows_k, causal=False, window=(-1, -1), device=None):
    left, right = window
    if causal:
        right = 0
    i = torch.arange(rows_q, device=device)[:, None] + rows_k - rows_q
    j = torch.arange(rows_k, device=device)[None, :]
    mask = torch.ones(rows_q, rows_k, dtype=torch.bool, device=device)
    if left >= 0:
        mask &= j >= i - left
    if right >= 0:
        mask &= j <= i + right
    return mask


def one(q, k, v, mask, scale, softcap):
    """[rows, heads, dim] of one sequence: o and lse [heads, rows], in the dtype of the operands."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    x = torch.einsum("ihd,jhd->hij", q, k) * scale
    if softcap:
        x = softcap * torch.tanh(x / softcap)
    x = x.masked_fill(~mask, -torch.inf)
    seen = mask.any(-1)
    safe = torch.where(seen[:, None], x, torch.zeros_like(x))
    lse = (
        torch.where(seen, torch.logsumexp(safe, -1), torch.full_like(safe[..., 0], -torch.inf))
        if x.shape[-1]
        else x.new_full(x.shape[:2], -torch.inf)
    )
    weights = torch.where(seen[:, None], torch.softmax(safe, -1), torch.zeros_like(x)) if x.shape[-1] else x
    return torch.einsum("hij,jhd->ihd", weights.to(v.dtype), v), lse


def attention(q, k, v, cu_q=None, cu_k=None, used_q=None, used_k=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0):
    """(o, lse) of packed or batched operands, in their own dtype: pass float64 for the truth, 16 bits for the yardstick."""
    batch = len(cu_q) - 1 if cu_q is not None else len(cu_k) - 1 if cu_k is not None else q.shape[0]
    scale = softmax_scale or q.shape[-1] ** -0.5
    shape_q = q.shape
    rows_q, rows_k = q.shape[-3], k.shape[-3]
    q, k, v = (t.reshape(-1, *t.shape[-2:]) for t in (q, k, v))
    out = q.new_zeros(*q.shape[:2], v.shape[-1])
    lse = q.new_full((q.shape[1], q.shape[0]), -torch.inf)
    for (a, n), (b, m) in zip(spans(cu_q, used_q, batch, rows_q), spans(cu_k, used_k, batch, rows_k)):
        mask = visible(n, m, causal, window_size, q.device)
        o, s = one(q[a : a + n], k[b : b + m], v[b : b + m], mask, scale, softcap)
        out = torch.cat((out[:a], o, out[a + n :]))
        lse = torch.cat((lse[:, :a], s, lse[:, a + n :]), 1)
    if cu_q is None:
        out = out.reshape(*shape_q[:-1], out.shape[-1])
        lse = lse.reshape(lse.shape[0], *shape_q[:2]).transpose(0, 1)
    return out, lse


def leaves(tensors, dtype):
    return [t.detach().to(dtype).requires_grad_() for t in tensors]


def run(function, tensors, dout, dlse=None):
    """[o, lse, dq, dk, dv] of a function of q, k, v that returns (o, lse). Rows with lse -inf have no gradient through it."""
    o, lse = function(*tensors)
    loss = (o * dout.to(o.dtype)).sum()
    if dlse is not None:
        loss = loss + torch.where(lse.isfinite(), lse * dlse.to(lse.dtype), 0).sum()
    grads = torch.autograd.grad(loss, tensors)
    return [o.detach(), lse.detach(), *grads]


NAMES = ["o", "lse", "dq", "dk", "dv"]


def check(function, q, k, v, dout, dlse=None, **problem):
    """Runs `function(q, k, v)` -> (o, lse) and compares it with float64: the error is at most twice that of the same mathematics in the
    operands' own type, plus one rounding step, plus what float32 sums lose where large terms cancel."""
    kind = q.dtype
    got = run(function, leaves((q, k, v), kind), dout, dlse)
    truth = run(lambda *t: attention(*t, **problem), leaves((q, k, v), torch.float64), dout, dlse)
    plain = run(lambda *t: attention(*t, **problem), leaves((q, k, v), kind), dout, dlse)
    step, noise = torch.finfo(kind).eps, cancellation(q, k, v, dout)
    for name, a, b, c in zip(NAMES, got, truth, plain):
        compare(name, a, b, c, torch.finfo(torch.float32).eps if name == "lse" else step, noise if name in ("dq", "dk") else 0.0)
    return got


def cancellation(q, k, v, dout):
    """Of dq and dk: both subtract sums of head_dim_v products, which may be equal."""
    if 0 in (q.numel(), k.numel()):
        return 0.0
    largest = (t.abs().max().item() for t in (torch.cat((q.flatten(), k.flatten())), v, dout))
    return torch.finfo(torch.float32).eps * v.shape[-1] * math.prod(largest)


def compare(name, got, truth, plain, step, noise):
    got, plain = got.double(), plain.double()
    assert got.shape == truth.shape, f"{name}: {tuple(got.shape)}, not {tuple(truth.shape)}"
    infinite = truth.isinf()
    assert torch.equal(infinite, got.isinf()), f"{name}: infinite in other places"
    error, yardstick = ((t - truth).masked_fill(infinite, 0).abs() for t in (got, plain))
    largest = truth.masked_fill(infinite, 0).abs().max().item() if truth.numel() else 0.0
    allowed = 2 * (yardstick.max().item() if truth.numel() else 0.0) + step * largest + noise
    if truth.numel():
        assert not error.isnan().any(), f"{name}: NaN"
        assert error.max().item() <= allowed, f"{name}: error {error.max().item():.3g}, allowed {allowed:.3g}"
