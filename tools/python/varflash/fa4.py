"""FlashAttention-4's functions (module flash_attn.cute): its order of arguments, and (o, lse or None) always."""

from . import _flash


def _pair(result, return_lse):
    return result if return_lse else (result, None)


def flash_attn_func(
    q,
    k,
    v,
    qv=None,
    gather_kv_indices=None,
    softmax_scale=None,
    causal=False,
    window_size=(None, None),
    learnable_sink=None,
    softcap=0.0,
    num_splits=1,
    pack_gqa=None,
    deterministic=False,
    *,
    return_lse=False,
    **others,
):
    """See varflash.flash_attn_func."""
    _flash.refuse(dict(qv=qv, gather_kv_indices=gather_kv_indices, learnable_sink=learnable_sink, **others))
    result = _flash.flash_attn_func(q, k, v, 0.0, softmax_scale, causal, window_size, softcap, None, deterministic, return_lse=return_lse)
    return _pair(result, return_lse)


def flash_attn_varlen_func(
    q,
    k,
    v,
    qv=None,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
    max_seqlen_q=None,
    max_seqlen_k=None,
    min_seqlen_k=None,
    seqused_q=None,
    seqused_k=None,
    gather_kv_indices=None,
    page_table=None,
    softmax_scale=None,
    causal=False,
    window_size=(None, None),
    learnable_sink=None,
    softcap=0.0,
    num_splits=1,
    pack_gqa=None,
    deterministic=False,
    *,
    return_lse=False,
    **others,
):
    """See varflash.flash_attn_varlen_func."""
    _flash.refuse(dict(qv=qv, gather_kv_indices=gather_kv_indices, page_table=page_table, learnable_sink=learnable_sink, **others))
    result = _flash.flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0, softmax_scale, causal, window_size, softcap, None,
        deterministic, seqused_q=seqused_q, seqused_k=seqused_k, return_lse=return_lse,
    )  # fmt: skip
    return _pair(result, return_lse)
