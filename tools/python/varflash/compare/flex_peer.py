"""FlexAttention as a peer: packed sequences as one long one with a block mask.

Compiled for each shape by itself (dynamic shapes would cost it its bounds-free kernels), so its set-up takes tens of seconds a problem; the
block mask comes from row intervals, since create_block_mask would look at every pair. Neither is timed.
"""

import torch
import torch._dynamo.config
import torch._functorch.config

BLOCK = 128
_compiled = {}


def _attention(module):
    if not _compiled:
        torch._dynamo.config.recompile_limit = 1024
        torch._functorch.config.donated_buffer = False  # a backward that is timed runs again and again on what one forward saved
        _compiled["attention"] = torch.compile(module.flex_attention, dynamic=False)
    return _compiled["attention"]


def visible(problem, device):
    """First and last visible key of every query row, in packed rows; first > last: none."""
    cu_q, cu_k = (cu.long() for cu in problem.cumulative(device))
    document = torch.repeat_interleave(torch.arange(len(cu_q) - 1, device=device), cu_q.diff())
    start, keys = cu_k[document], cu_k.diff()[document]
    diagonal = torch.arange(len(document), device=device) - cu_q[1:][document] + keys
    left, right = problem.window
    first = (diagonal - left).clamp(min=0) if left >= 0 else torch.zeros_like(start)
    last = torch.minimum(diagonal + right, keys - 1) if right >= 0 else keys - 1
    return start + first, start + last


def _rows_of_blocks(first, last, seen, shape):
    """How many rows of each query block have each key block in [first, last]; rows that see nothing count nowhere."""
    steps = torch.zeros(shape[0], shape[1] + 1, dtype=torch.int32, device=first.device)
    block = torch.arange(len(first), device=first.device) // BLOCK
    counted = (seen & (first <= last)).int()
    steps.index_put_((block, first.clamp(0, shape[1])), counted, accumulate=True)
    steps.index_put_((block, (last + 1).clamp(0, shape[1])), -counted, accumulate=True)
    return steps.cumsum(1)[:, :-1]


def block_mask(module, problem, device):
    first, last = visible(problem, device)
    total = (sum(problem.lengths_q), sum(problem.lengths_k))
    shape = [-(-rows // BLOCK) for rows in total]
    seen = first <= last
    touched = _rows_of_blocks(first // BLOCK, last // BLOCK, seen, shape) > 0
    full = _rows_of_blocks(-(-first // BLOCK), (last + 1) // BLOCK - 1, seen, shape) == BLOCK

    def listed(blocks):
        order = blocks.int().argsort(dim=1, descending=True, stable=True)
        return blocks.sum(1, dtype=torch.int32)[None, None], order.int()[None, None]

    first, last = first.int(), last.int()
    return module.BlockMask.from_kv_blocks(
        *listed(touched & ~full),
        *listed(full),
        BLOCK_SIZE=BLOCK,
        mask_mod=lambda b, h, i, j: (first[i] <= j) & (j <= last[i]),
        seq_lengths=total,
    )


def attention(module, problem, device):
    cap = problem.flags.softcap
    options = dict(
        block_mask=block_mask(module, problem, device),
        score_mod=(lambda x, b, h, i, j: cap * torch.tanh(x / cap)) if cap else None,
        scale=problem.scale,
        enable_gqa=problem.flags.heads_q != problem.flags.heads_k,
    )
    compiled = _attention(module)

    def run(q, k, v):
        q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v))
        return compiled(q, k, v, **options)[0].transpose(0, 1)

    return run
