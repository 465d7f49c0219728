"""FlashAttention-2's function over a cache of keys and values, as steps of generation call it.

The cache is read where it lies, with its lengths on the device. Not here: rotation, pages, other orders of the batch; they are refused.
"""

import torch

from ._flash import flash_attn_func, refuse
from ._library import InvalidArgument


def _append(cache, new, rows):
    """Writes new [batch, count, heads, dim] to rows [batch, count] of each entry, in place, without waiting."""
    cache[torch.arange(len(cache), device=cache.device)[:, None], rows] = new


@torch.no_grad()
def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    block_table=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    rotary_interleaved=True,
    alibi_slopes=None,
    num_splits=0,
    return_softmax_lse=False,
):
    """q [batch, seqlen_q, heads_q, head_dim] over k_cache, v_cache [batch, room, heads_k, head_dim], of which cache_seqlens (a number, or
    int32 or int64 [batch]) tokens are in use; without it all. k, v [batch, count, heads_k, head_dim], if given, are first written behind
    those, into the caches. causal: the last query sees the last token. Returns o, or (o, lse) with return_softmax_lse. No gradients.
    """
    refuse(
        dict(
            rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad,
            block_table=block_table, alibi_slopes=alibi_slopes,
        )
    )  # fmt: skip
    used = cache_seqlens
    if isinstance(used, int):
        used = torch.full((len(q),), used, dtype=torch.int32, device=q.device)
    if k is not None:
        if used is None or v is None:
            raise InvalidArgument("k: new tokens need v as well, and cache_seqlens, which says where they belong")
        rows = used.long()[:, None] + torch.arange(k.shape[1], device=q.device)
        _append(k_cache, k, rows)
        _append(v_cache, v, rows)
        used = used + k.shape[1]
    options = dict(softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap)
    return flash_attn_func(q, k_cache, v_cache, seqused_k=used, return_lse=return_softmax_lse, **options)
