"""attend(): the one way from the public functions to a launch, with autograd.

Eager calls on plain tensors take an autograd.Function straight to _launch; whatever traces (torch.compile, export, fake tensors, tensor
subclasses, dispatch modes) sees the operators torch.ops.varflash.forward and .backward, which do the same.
Invariant: the two ways give the same bits.

Options travel as one tuple: (softmax_scale, softcap, causal, window_left, window_right, deterministic). ORDER options. A scale of 0 is
1 / sqrt(head_dim), an edge below 0 is none.
"""

import os
from contextlib import contextmanager

import torch
from torch.autograd import forward_ad

from . import _launch
from ._library import InvalidArgument, Unsupported

# ---- copies --------------------------------------------------------------------------------------------------------------------

_copies_allowed = os.environ.get("VARFLASH_COPIES", "allow") != "error"


@contextmanager
def copies(allowed):
    """Within it, calls that must copy an operand first may do so, or raise. The process starts with VARFLASH_COPIES=allow or =error."""
    global _copies_allowed
    before, _copies_allowed = _copies_allowed, allowed
    try:
        yield
    finally:
        _copies_allowed = before


def _copying(name, why):
    if not _copies_allowed:
        raise InvalidArgument(f"{name}: {why}; this needs a copy, and copies are errors here (varflash.copies, VARFLASH_COPIES)")


def _with_contiguous_rows(tensor, name):
    """The same values, the last dimension contiguous. What is expanded stays so: a gradient of sum() costs one row, not a tensor."""
    if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1:
        return tensor
    _copying(name, f"stride of the last dimension is {tensor.stride(-1)}, must be 1")
    if tensor.numel() == 0:
        return tensor.clone(memory_format=torch.contiguous_format)
    small = tensor
    for i in range(tensor.dim() - 1):
        if tensor.stride(i) == 0:
            small = small.narrow(i, 0, 1)
    return small.contiguous().expand(tensor.shape)


def _padded(tensor, name):
    rest = -tensor.shape[-1] % 8
    if rest == 0:
        return tensor
    _copying(name, f"last dimension is {tensor.shape[-1]}, must be a multiple of 8")
    return torch.nn.functional.pad(tensor, (0, rest))


def _autocast(q, k, v):
    """Under autocast, float32 operands become its type, as for every matrix product."""
    device = q.device.type
    if not torch.is_autocast_enabled(device):
        return q, k, v
    dtype = torch.get_autocast_dtype(device)
    return tuple(t.to(dtype) if t.dtype is torch.float32 else t for t in (q, k, v))


def _adapted(q, k, v, options):
    """(q, k, v, options) as the library takes them: in autocast's type, head dims padded to multiples of 8, rows contiguous."""
    if q.dtype is not k.dtype or q.dtype is not v.dtype or q.dtype is torch.float32:
        q, k, v = _autocast(q, k, v)
    if options[0] == 0.0 and q.shape[-1] % 8 != 0:
        options = (q.shape[-1] ** -0.5, *options[1:])
    q, k, v = (_with_contiguous_rows(_padded(t, name), name) for t, name in ((q, "q"), (k, "k"), (v, "v")))
    return q, k, v, options


# ---- the operators -------------------------------------------------------------------------------------------------------------

_LENGTHS = "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqused_q, Tensor? seqused_k"
_OPTIONS = "float softmax_scale, float softcap, bool causal, int window_left, int window_right, bool deterministic"
# Inputs keep the strides that they have in eager mode.
_TAGS = (torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag)

torch.library.define("varflash::forward", f"(Tensor q, Tensor k, Tensor v, {_LENGTHS}, {_OPTIONS}) -> (Tensor, Tensor)", tags=_TAGS)
torch.library.define(
    "varflash::backward",
    f"(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_LENGTHS}, {_OPTIONS})"
    " -> (Tensor, Tensor, Tensor)",
    tags=_TAGS,
)


def _forward(tensors, options, want_lse):
    key = _launch.key_of(*tensors, options, want_lse)
    call = _launch.kept(key) or _launch.new_forward(key, *tensors, options, want_lse)
    return _launch.forward(call, *tensors)


def _backward(dout, dlse, saved, options):
    if dout is None:
        dout = saved[3].new_zeros(saved[3].shape[-1:]).expand(saved[3].shape)
    return _launch.backward(_with_contiguous_rows(dout, "dout"), dlse, *saved, options)


@torch.library.impl("varflash::forward", ("cpu", "cuda"))
def _forward_kernel(q, k, v, cu_q, cu_k, used_q, used_k, *options):
    return _forward((q, k, v, cu_q, cu_k, used_q, used_k), options, True)


@torch.library.impl("varflash::backward", ("cpu", "cuda"))
def _backward_kernel(dout, dlse, q, k, v, out, lse, cu_q, cu_k, used_q, used_k, *options):
    return _backward(dout, dlse, (q, k, v, out, lse, cu_q, cu_k, used_q, used_k), options)


@torch.library.register_fake("varflash::forward")
def _forward_fake(q, k, v, cu_q, cu_k, used_q, used_k, *options):
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(_launch.lse_shape(q.shape), dtype=torch.float32)


@torch.library.register_fake("varflash::backward")
def _backward_fake(dout, dlse, q, k, v, *others):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:3], *output, *inputs[3:7])
    ctx.options = inputs[7:]


def _backward_traced(ctx, dout, dlse):
    if dout is None and dlse is None:
        return (None,) * 13
    q, k, v, out, *others = ctx.saved_tensors
    if dout is None:
        dout = torch.zeros_like(out)
    return *torch.ops.varflash.backward(dout, dlse, q, k, v, out, *others, *ctx.options), *(None,) * 10


torch.library.register_autograd("varflash::forward", _backward_traced, setup_context=_save)


# ---- eager mode ----------------------------------------------------------------------------------------------------------------


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, cu_q, cu_k, used_q, used_k, call, options, want_lse):
        out, lse = _launch.forward(call, q, k, v, cu_q, cu_k, used_q, used_k)
        ctx.save_for_backward(q, k, v, out, lse, cu_q, cu_k, used_q, used_k)
        ctx.set_materialize_grads(False)
        ctx.options = options
        return (out, lse) if want_lse else out

    @staticmethod
    def backward(ctx, dout, dlse=None):
        if dout is None and dlse is None:
            return (None,) * 10
        saved = ctx.saved_tensors
        grads = _backward(dout, dlse, saved, ctx.options)
        if torch.is_grad_enabled():  # create_graph: whoever differentiates again must hear that it is not possible
            grads = _Once.apply(*grads, *saved[:3], dout, dlse)
        return *grads, *(None,) * 7


class _Once(torch.autograd.Function):
    """Gradients that depend on what they were made of, in a way that has no derivative here."""

    @staticmethod
    def forward(ctx, dq, dk, dv, *sources):
        return dq, dk, dv

    @staticmethod
    def backward(ctx, *grads):
        raise Unsupported("second derivative: varflash has first derivatives only")


# Function.apply without what it does for torch.func, which attend() has refused by then: a fifth of the host's time for a call.
_apply = super(torch.autograd.Function, _Attention).apply

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_transform = torch._C._functorch.peek_interpreter_stack


def _refuse_transforms(*tensors):
    if _function_transform() is not None:
        raise Unsupported(
            "torch.func: vmap, grad, jvp and the like have no rule for varflash; use torch.autograd, and a packed batch for vmap"
        )
    if any(t is not None and forward_ad.unpack_dual(t).tangent is not None for t in tensors):
        raise Unsupported("forward-mode AD: varflash has no rule for dual tensors; use reverse mode")


def _refuse_others(tensors):
    """Arguments that are no tensors, or none that memory can be read of."""
    for name, tensor in tensors.items():
        if tensor is not None and not isinstance(tensor, torch.Tensor):
            raise InvalidArgument(f"{name}: is a {type(tensor).__name__}; must be a torch.Tensor")
    for name in "qkv":
        if tensors[name] is None:
            raise InvalidArgument(f"{name}: is None; must be a torch.Tensor")
        if tensors[name].is_nested:
            raise Unsupported(f"{name}: is a nested tensor; give its values() and offsets() to flash_attn_varlen_func")


def attend(q, k, v, cu_q, cu_k, used_q, used_k, options, want_lse):
    """o, or (o, lse)."""
    if (
        torch.compiler.is_compiling()
        or type(q) not in _PLAIN
        or type(k) not in _PLAIN
        or type(v) not in _PLAIN
        or _dispatch_modes()
        or q.is_meta
    ):
        return _attend_traced(q, k, v, cu_q, cu_k, used_q, used_k, options, want_lse)
    if _function_transform() is not None or forward_ad._current_level >= 0:
        _refuse_transforms(q, k, v)
    grad = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    try:
        key = _launch.key_of(q, k, v, cu_q, cu_k, used_q, used_k, options, grad or want_lse)
    except AttributeError:
        _refuse_others(dict(q=q, k=k, v=v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, seqused_q=used_q, seqused_k=used_k))
        raise
    # A float32 call depends on autocast, which the key does not hold.
    call = None if q.dtype is torch.float32 else _launch.kept(key)
    if call is None:
        dim_v = v.shape[-1]
        adapted = _adapted(q, k, v, options)
        if adapted[0] is not q or adapted[1] is not k or adapted[2] is not v:
            q, k, v, options = adapted
            return _narrowed(attend(q, k, v, cu_q, cu_k, used_q, used_k, options, want_lse), dim_v)
        call = _launch.kept(key) or _launch.new_forward(key, q, k, v, cu_q, cu_k, used_q, used_k, options, grad or want_lse)
    if grad:
        return _apply(q, k, v, cu_q, cu_k, used_q, used_k, call, options, want_lse)
    result = _launch.forward(call, q, k, v, cu_q, cu_k, used_q, used_k)
    return result if want_lse else result[0]


def _attend_traced(q, k, v, cu_q, cu_k, used_q, used_k, options, want_lse):
    if not torch.compiler.is_compiling():
        _refuse_others(dict(q=q, k=k, v=v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, seqused_q=used_q, seqused_k=used_k))
    dim_v = v.shape[-1]
    q, k, v, options = _adapted(q, k, v, options)
    result = torch.ops.varflash.forward(q, k, v, cu_q, cu_k, used_q, used_k, *options)
    return _narrowed(result if want_lse else result[0], dim_v)


def _narrowed(result, dim_v):
    """Takes back what _padded added to the values."""
    out = result[0] if isinstance(result, tuple) else result
    if out.shape[-1] == dim_v:
        return result
    return (out[..., :dim_v], result[1]) if isinstance(result, tuple) else out[..., :dim_v]
