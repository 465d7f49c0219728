"""varlen_attn with the signature of torch.nn.attention.varlen."""

from typing import NamedTuple

from ._attention import attend
from ._flash import options_of, refuse


class AuxRequest(NamedTuple):
    """What varlen_attn returns besides the output; torch's own class does as well."""

    lse: bool = False


def varlen_attn(
    query,
    key,
    value,
    cu_seq_q,
    cu_seq_k=None,
    max_q=None,
    max_k=None,
    is_causal=False,
    return_aux=None,
    *,
    scale=None,
    window_size=(-1, -1),
    enable_gqa=False,
    seqused_k=None,
    block_table=None,
    num_splits=None,
):
    """As torch.nn.attention.varlen.varlen_attn: window_size (-1, 0) is causal, and so is is_causal, which PyTorch 2.10 has in its place.
    max_q and max_k are not needed and not read; fewer key heads need no enable_gqa, as up to 2.11.

    Returns o [total_q, heads, head_dim], or (o, lse) with return_aux.lse; lse is float32 [heads, total_q] and differentiable.
    """
    refuse({"block_table": block_table})
    options = options_of(scale, 0.0, is_causal, window_size, False)
    want_lse = return_aux is not None and return_aux.lse
    return attend(query, key, value, cu_seq_q, cu_seq_k, None, seqused_k, options, want_lse)
