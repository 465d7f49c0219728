"""explain(): which kernels serve a call, and why; or every constraint that none could meet. Launches nothing."""

import ctypes
import json

from . import _launch, _library
from ._attention import _adapted
from ._flash import options_of


def explain(
    q,
    k,
    v,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
    *,
    seqused_q=None,
    seqused_k=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    deterministic=False,
    backward=False,
    arch=None,
):
    """The library's report on a call of flash_attn_varlen_func (or, without cu_seqlens, flash_attn_func) as a dictionary.

    arch, "sm_90a" for example, asks on behalf of another GPU; CPU tensors will do then.
    """
    q, k, v, options = _adapted(q.detach(), k.detach(), v.detach(), options_of(softmax_scale, softcap, causal, window_size, deterministic))
    call = _launch.question(q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, options, backward)
    library = _library.load()
    function = library.vf_explain_backward if backward else library.vf_explain_forward
    length = ctypes.c_size_t()

    text = ctypes.create_string_buffer(1 << 18)
    status = function(call.context, call.address, arch and arch.encode(), text, len(text), ctypes.addressof(length))
    if not length.value:
        raise _library.failure(status)
    return json.loads(text.value)
