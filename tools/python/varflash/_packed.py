"""FlashAttention-2's functions on packed projections. Views of them are taken as they are, so nothing is copied on the way in; PyTorch
puts the gradients together.
"""

from ._flash import flash_attn_func, flash_attn_varlen_func


def flash_attn_qkvpacked_func(qkv, *arguments, **options):
    """qkv [batch, seqlen, 3, heads, head_dim]; the rest, from dropout_p on, as for flash_attn_func."""
    return flash_attn_func(*qkv.unbind(-3), *arguments, **options)


def flash_attn_kvpacked_func(q, kv, *arguments, **options):
    """kv [batch, seqlen, 2, heads, head_dim]; the rest, from dropout_p on, as for flash_attn_func."""
    return flash_attn_func(q, *kv.unbind(-3), *arguments, **options)


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen=None, *arguments, **options):
    """qkv [total, 3, heads, head_dim]; the rest, from dropout_p on, as for flash_attn_varlen_func."""
    return flash_attn_varlen_func(*qkv.unbind(-3), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *arguments, **options)


def flash_attn_varlen_kvpacked_func(q, kv, *arguments, **options):
    """kv [total_k, 2, heads, head_dim]; the rest, from cu_seqlens_q on, as for flash_attn_varlen_func."""
    return flash_attn_varlen_func(q, *kv.unbind(-3), *arguments, **options)
