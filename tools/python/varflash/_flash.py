"""FlashAttention's functions: names, order and defaults of version 2, and the further arguments of 3 and 4 by name.

Not the place of a rule about tensors: the library judges those. Invariant: an argument that would change the result and is not
supported is refused, never ignored.
"""

import torch

from ._attention import attend
from ._library import InvalidArgument, Unsupported

# Arguments of any version that only say how to compute.
_HINTS = frozenset(
    "num_splits pack_gqa sm_margin scheduler_metadata seqlen_k_per_split disable_scheduler_metadata min_seqlen_k score_mod_bwd "
    "block_sparse_tensors_bwd aux_tensors aux_scalars gather_bwd_recompute_p gather_bwd_token_chunk".split()
)
# Arguments that change the result: what they ask for, and the values that ask for nothing.
_UNSUPPORTED = {
    "dropout_p": ("dropout", (0, None)),
    "alibi_slopes": ("ALiBi", (None,)),
    "block_table": ("a paged KV cache", (None,)),
    "rotary_cos": ("rotation", (None,)),
    "rotary_sin": ("rotation", (None,)),
    "cache_batch_idx": ("another order of the batch", (None,)),
    "cache_leftpad": ("padding on the left of a cache", (None,)),
    "page_table": ("a paged KV cache", (None,)),
    "qv": ("a second query for values", (None,)),
    "q_descale": ("fp8", (None,)),
    "k_descale": ("fp8", (None,)),
    "v_descale": ("fp8", (None,)),
    "attention_chunk": ("chunked attention", (0, None)),
    "learnable_sink": ("attention sinks", (None,)),
    "score_mod": ("a function of the score", (None,)),
    "mask_mod": ("a mask function", (None,)),
    "block_sparse_tensors": ("block sparsity", (None,)),
    "gather_kv_indices": ("gathered keys", (None,)),
}


def refuse(arguments):
    """Raises for an argument that is neither a hint nor at a value that asks for nothing."""
    for name, value in arguments.items():
        if name in _HINTS:
            continue
        if name not in _UNSUPPORTED:
            raise TypeError(f"unexpected argument '{name}': no version of FlashAttention's function has it")
        what, neutral = _UNSUPPORTED[name]
        if isinstance(value, torch.Tensor) or value not in neutral:
            found = "a tensor" if isinstance(value, torch.Tensor) else value
            raise Unsupported(
                f"{name}: is {found}; {what} is not supported, leave it out. (Given by position? This is FlashAttention-2's order; "
                "varflash.fa3 and varflash.fa4 have the others)"
            )


def _edge(value, side):
    if value is None:
        return -1
    if value < -1:
        raise InvalidArgument(f"window_size: {side} is {value}; must be at least 0, or -1 for no edge")
    return value


def _scale(value):
    if value is None:
        return 0.0
    if not value > 0:
        raise InvalidArgument(f"softmax_scale: is {value}; must be positive, or None for 1 / sqrt(head_dim)")
    return float(value)


def options_of(softmax_scale, softcap, causal, window_size, deterministic):
    """ORDER options, see _attention."""
    try:
        left, right = window_size
    except (TypeError, ValueError):
        raise InvalidArgument(f"window_size: is {window_size}; must be two numbers, left and right") from None
    if left != -1 or right != -1:
        left, right = _edge(left, "left"), _edge(right, "right")
    scale = 0.0 if softmax_scale is None else _scale(softmax_scale)
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    return scale, float(softcap or 0.0), bool(causal), left, right, bool(deterministic)


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
    max_seqlen_q=None,
    max_seqlen_k=None,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
    *,
    seqused_q=None,
    seqused_k=None,
    return_lse=False,
    **others,
):
    """Attention over packed sequences, with FlashAttention-2's arguments; those of FlashAttention-3 and -4 by name.

    q [total_q, heads_q, head_dim], k [total_k, heads_k, head_dim], v [total_k, heads_k, head_dim_v]; heads_q is a multiple of heads_k.
    cu_seqlens_q, cu_seqlens_k [batch + 1], int32 or int64, on the same device: sequence b is rows cu[b] ... cu[b + 1] - 1. Where one is
        None, that side is batched, [batch, seqlen, heads, head_dim].
    seqused_q, seqused_k [batch]: tokens in use of each sequence; the rest of its rows is as if it were not there.
    max_seqlen_q, max_seqlen_k: not needed and not read.
    causal, window_size: aligned bottom right; -1 or None is no edge. softcap: softcap * tanh(x / softcap) of the scaled scores.
    deterministic: the backward gives the same bits every time (also under torch.use_deterministic_algorithms).

    Returns o [total_q, heads_q, head_dim_v]; with return_attn_probs (o, lse, None), with return_lse (o, lse). lse is float32
    [heads_q, total_q], differentiable, the natural logarithm; -inf where a row sees no key. Rows without a token are 0 in o and in the
    gradients.
    """
    if dropout_p or others or alibi_slopes is not None or block_table is not None:
        refuse({"dropout_p": dropout_p, "alibi_slopes": alibi_slopes, "block_table": block_table, **others})
    options = options_of(softmax_scale, softcap, causal, window_size, deterministic)
    want_lse = return_attn_probs or return_lse
    result = attend(q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, options, want_lse)
    return (*result, None) if return_attn_probs else result


def flash_attn_func(
    q,
    k,
    v,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    *,
    seqused_q=None,
    seqused_k=None,
    return_lse=False,
    **others,
):
    """Attention over a batch [batch, seqlen, heads, head_dim]; otherwise as flash_attn_varlen_func. lse is [batch, heads_q, seqlen]."""
    if dropout_p or others or alibi_slopes is not None:
        refuse({"dropout_p": dropout_p, "alibi_slopes": alibi_slopes, **others})
    options = options_of(softmax_scale, softcap, causal, window_size, deterministic)
    want_lse = return_attn_probs or return_lse
    result = attend(q, k, v, None, None, seqused_q, seqused_k, options, want_lse)
    return (*result, None) if return_attn_probs else result
