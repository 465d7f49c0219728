"""The attentions that can be compared: each turns a problem into a function of packed (q, k, v) that returns packed o, or says why not.

Whatever a peer needs beyond the tensors (host lengths, block masks) is made before it is timed. Invariant: a peer computes the problem as
it stands, or is left out.
"""

import inspect

import torch.nn.functional as F


class Skip(Exception):
    """This peer cannot do this problem, or is not here."""


def _require(condition, reason):
    if not condition:
        raise Skip(reason)


def _import(module):
    try:
        return __import__(module, fromlist=["_"])
    except Exception as error:  # broken installations raise anything
        raise Skip(f"{module} cannot be imported: {str(error).splitlines()[0][:80] if str(error) else type(error).__name__}") from None


def varflash(problem, device):
    from .. import flash_attn_varlen_func

    cu_q, cu_k = problem.cumulative(device)
    options = dict(
        softmax_scale=problem.scale,
        window_size=problem.window,
        softcap=problem.flags.softcap,
        deterministic=problem.flags.deterministic,
    )
    return lambda q, k, v: flash_attn_varlen_func(q, k, v, cu_q, cu_k, **options)


def torch_varlen(problem, device):
    module = _import("torch.nn.attention.varlen")
    _require(device == "cuda", "needs a GPU")
    _require(not problem.flags.softcap, "no softcap")
    _require(problem.flags.head_dim == problem.flags.head_dim_v, "one head dim for q and v")
    cu_q, cu_k = problem.cumulative(device)
    longest_q, longest_k = max(problem.lengths_q), max(problem.lengths_k)
    options = dict(scale=problem.scale, window_size=problem.window)
    if problem.flags.heads_q != problem.flags.heads_k and "enable_gqa" in inspect.signature(module.varlen_attn).parameters:
        options["enable_gqa"] = True
    return lambda q, k, v: module.varlen_attn(q, k, v, cu_q, cu_k, longest_q, longest_k, **options)


def _sdpa(backend):
    def make(problem, device):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        _require(problem.equal_lengths, "needs equal lengths")
        _require(problem.window in ((-1, -1), (-1, 0)), "no window")
        _require(not problem.flags.softcap, "no softcap")
        _require(device == "cuda" or backend == "FLASH_ATTENTION", "needs a GPU")
        batch, rows = len(problem.lengths_q), problem.lengths_q[0]
        options = dict(is_causal=problem.causal, scale=problem.scale)
        if problem.flags.heads_q != problem.flags.heads_k:
            options["enable_gqa"] = True
        kernel = getattr(SDPBackend, backend)

        def run(q, k, v):
            q, k, v = (t.view(batch, rows, *t.shape[1:]).transpose(1, 2) for t in (q, k, v))
            with sdpa_kernel(kernel):
                return F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2).flatten(0, 1)

        return run

    return make


def cudnn(problem, device):
    module = _import("cudnn")
    from .cudnn_peer import attention

    _require(device == "cuda", "needs a GPU")
    _require(problem.window in ((-1, -1), (-1, 0)), "no window")
    _require(not problem.flags.softcap, "no softcap")
    _require(not problem.causal or problem.lengths_q == problem.lengths_k, "causal only with equal lengths")
    return attention(module, problem, device)


def flex(problem, device):
    module = _import("torch.nn.attention.flex_attention")
    from .flex_peer import attention

    _require(device == "cuda", "needs a GPU")
    return attention(module, problem, device)


def _flash_attn(module_name):
    def make(problem, device):
        module = _import(module_name)
        # Where only version 4 is installed, flash_attn is an empty folder around it.
        _require(hasattr(module, "flash_attn_varlen_func"), f"{module_name} has no flash_attn_varlen_func")
        _require(device == "cuda", "needs a GPU")
        cu_q, cu_k = problem.cumulative(device)
        options = dict(
            cu_seqlens_q=cu_q,
            cu_seqlens_k=cu_k,
            max_seqlen_q=max(problem.lengths_q),
            max_seqlen_k=max(problem.lengths_k),
            softmax_scale=problem.scale,
            causal=problem.causal,
            window_size=(-1, -1) if problem.causal else problem.window,
            softcap=problem.flags.softcap,
            deterministic=problem.flags.deterministic,
        )
        if module_name == "flash_attn.cute":
            options["window_size"] = tuple(None if edge < 0 else edge for edge in options["window_size"])

        def run(q, k, v):
            out = module.flash_attn_varlen_func(q, k, v, **options)
            return out[0] if isinstance(out, tuple) else out

        return run

    return make


# The first is what the others are compared with.
PEERS = {
    "varflash": varflash,
    "torch-varlen": torch_varlen,
    "sdpa-cudnn": _sdpa("CUDNN_ATTENTION"),
    "sdpa-flash": _sdpa("FLASH_ATTENTION"),
    "cudnn": cudnn,
    "flex": flex,
    "flash-attn-2": _flash_attn("flash_attn"),
    "flash-attn-3": _flash_attn("flash_attn_interface"),
    "flash-attn-4": _flash_attn("flash_attn.cute"),
}
