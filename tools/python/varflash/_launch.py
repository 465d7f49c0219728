"""One call of the library on torch tensors: forward and backward, without autograd.

What shapes, strides, dtypes and options decide is filled in once and kept (class Call); a later call writes pointers and launches.
Invariant: nothing here waits for the device, and nothing is copied. Calls are kept by thread: two never write one struct at once.
"""

import ctypes
import os
import threading
from contextlib import contextmanager

import torch

from . import _library
from ._library import BackwardArgs, ForwardArgs, InvalidArgument, Unsupported

_DTYPES = {
    torch.float16: _library.FLOAT16,
    torch.bfloat16: _library.BFLOAT16,
    torch.float32: _library.FLOAT32,
    torch.int32: _library.INT32,
    torch.int64: _library.INT64,
}

# Kept calls of a thread. Beyond this many all are dropped: packed batches of ever new totals must not fill the memory.
_KEPT = 1024


class _Local(threading.local):
    def __init__(self):
        self.calls = {}


_local = _Local()


def _forget_calls():
    global _local
    _local = _Local()


os.register_at_fork(after_in_child=_forget_calls)

# Indices, in 8-byte words, of what changes from call to call. ORDER words
_F = [getattr(ForwardArgs, name).offset // 8 for name in ("q", "k", "v", "o", "lse")]
_B = [getattr(BackwardArgs, name).offset // 8 for name in ("q", "k", "v", "o", "lse", "dout", "dlse", "dq", "dk", "dv")]
_P = ["cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "workspace", "stream"]
_F += [(ForwardArgs.problem.offset + getattr(_library.Problem, name).offset) // 8 for name in _P]
_B += [(BackwardArgs.problem.offset + getattr(_library.Problem, name).offset) // 8 for name in _P]
_FQ, _FK, _FV, _FO, _FLSE, _FCUQ, _FCUK, _FUSEDQ, _FUSEDK, _FWORKSPACE, _FSTREAM = _F
_BQ, _BK, _BV, _BO, _BLSE, _BDOUT, _BDLSE, _BDQ, _BDK, _BDV, _BCUQ, _BCUK, _BUSEDQ, _BUSEDK, _BWORKSPACE, _BSTREAM = _B

try:  # The stream without the object around it: 0.1 in place of 1.5 microseconds.
    _raw_stream = torch._C._cuda_getCurrentRawStream
except AttributeError:

    def _raw_stream(index):
        return torch.cuda.current_stream(index).cuda_stream


# ---- checked mode --------------------------------------------------------------------------------------------------------------

_checked = os.environ.get("VARFLASH_CHECK", "0") not in ("0", "")


@contextmanager
def checked(on=True):
    """Within it, every call validates the lengths on the device first, waits for that, and raises for broken ones, naming the index. The
    process starts with VARFLASH_CHECK=0 or =1."""
    global _checked
    before, _checked = _checked, bool(on)
    try:
        yield
    finally:
        _checked = before


# ---- what shapes and options decide --------------------------------------------------------------------------------------------


def _describe(struct, name, shape, stride, dtype):
    if len(shape) > 4:
        raise InvalidArgument(f"{name}: has {len(shape)} dimensions; 4 at most are possible")
    if dtype not in _DTYPES:
        raise InvalidArgument(f"{name}: dtype is {dtype}; operands are float16, bfloat16 or (on the CPU) float32, lengths int32 or int64")
    struct.dtype, struct.ndim = _DTYPES[dtype], len(shape)
    struct.shape[: len(shape)], struct.stride[: len(shape)] = shape, stride


def _describe_output(struct, name, shape, dtype):
    stride = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        stride[i - 1] = stride[i] * max(shape[i], 1)
    _describe(struct, name, shape, stride, dtype)


def _describe_inputs(target, tensors, device):
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.device != device:
            raise InvalidArgument(f"{name}: is on {tensor.device} and q on {device}; all tensors must be on one device")
        _describe(getattr(target, name), name, tensor.shape, tensor.stride(), tensor.dtype)


def _describe_options(problem, options):
    scale, softcap, causal, left, right, deterministic = options
    problem.softmax_scale, problem.softcap = scale, softcap
    problem.deterministic = _library.SWITCH_ON if deterministic else _library.SWITCH_AUTO
    if causal:
        right = 0
    if left < 0 and (causal or right < 0):
        problem.mask = _library.MASK_CAUSAL if causal else _library.MASK_FULL
    else:
        problem.mask = _library.MASK_WINDOW
        problem.window_left = _library.NO_EDGE if left < 0 else left
        problem.window_right = _library.NO_EDGE if right < 0 else right


class Call:
    """A struct of arguments that lacks its pointers, and what must be allocated to launch it."""

    __slots__ = ("run", "args", "words", "address", "context", "device_index", "workspace_size", "shapes", "checked")

    def __init__(self, run, args, q, tensors, lengths, options):
        device = q.device
        if device.type not in _library.BACKENDS:
            raise Unsupported(f"q: is on {device}; CUDA devices and the CPU are possible")
        self.run, self.args, self.checked = run, args, False
        _describe_inputs(args, tensors, device)
        _describe_inputs(args.problem, lengths, device)
        _describe_options(args.problem, options)
        self.context = _library.context(device.type)
        self.device_index = device.index if device.type == "cuda" else -1
        args.problem.device = self.device_index + 1
        self.address = ctypes.addressof(args)
        self.words = memoryview((ctypes.c_uint64 * (ctypes.sizeof(args) // 8)).from_buffer(args)).cast("B").cast("Q")

    def measure(self, function):
        size = ctypes.c_size_t()
        status = function(self.context, self.address, ctypes.addressof(size))
        if status:
            raise _library.failure(status)
        self.args.problem.workspace_size = self.workspace_size = size.value

    def check(self, on):
        self.args.problem.check, self.checked = int(on), on

    def keep(self, key):
        calls = _local.calls
        if len(calls) >= _KEPT:
            calls.clear()
        calls[key] = self
        return self


def _lengths(cu_q, cu_k, used_q, used_k):
    return {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k, "seqused_q": used_q, "seqused_k": used_k}


def lse_shape(shape):
    """Of the LSE, from the shape of q: [heads, tokens] or [batch, heads, seqlen]."""
    return (*shape[:-3], shape[-2], shape[-3])


# ---- forward -------------------------------------------------------------------------------------------------------------------


def key_of(q, k, v, cu_q, cu_k, used_q, used_k, options, want_lse):
    """All that decides a call but its pointers."""
    return (
        options, want_lse,
        q.shape, q.stride(), q.dtype, q.device,
        k.shape, k.stride(), k.dtype, k.device,
        v.shape, v.stride(), v.dtype, v.device,
        None if cu_q is None else (cu_q.shape, cu_q.stride(), cu_q.dtype, cu_q.device),
        None if cu_k is None else (cu_k.shape, cu_k.stride(), cu_k.dtype, cu_k.device),
        None if used_q is None else (used_q.shape, used_q.stride(), used_q.dtype, used_q.device),
        None if used_k is None else (used_k.shape, used_k.stride(), used_k.dtype, used_k.device),
    )  # fmt: skip


def kept(key):
    return _local.calls.get(key)


def _forward_call(q, k, v, lengths, options, want_lse):
    call = Call(_library.load().vf_forward, ForwardArgs(), q, {"q": q, "k": k, "v": v}, lengths, options)
    if q.dim() < 3:
        raise InvalidArgument(f"q: has {q.dim()} dimensions; must be [tokens, heads, head_dim] or [batch, seqlen, heads, head_dim]")
    call.shapes = (*q.shape[:-1], v.shape[-1]), lse_shape(q.shape) if want_lse else None
    _describe_output(call.args.o, "o", call.shapes[0], q.dtype)
    if want_lse:
        _describe_output(call.args.lse, "lse", call.shapes[1], torch.float32)
    return call


def new_forward(key, q, k, v, cu_q, cu_k, used_q, used_k, options, want_lse):
    call = _forward_call(q, k, v, _lengths(cu_q, cu_k, used_q, used_k), options, want_lse)
    call.measure(_library.load().vf_forward_workspace_size)
    return call.keep(key)


def forward(call, q, k, v, cu_q, cu_k, used_q, used_k):
    """(o, lse or None)."""
    out_shape, lse_shape_ = call.shapes
    out = q.new_empty(out_shape)
    words = call.words
    words[_FQ] = q.data_ptr()
    words[_FK] = k.data_ptr()
    words[_FV] = v.data_ptr()
    words[_FO] = out.data_ptr()
    if lse_shape_ is None:
        lse = None
    else:
        lse = q.new_empty(lse_shape_, dtype=torch.float32)
        words[_FLSE] = lse.data_ptr()
    if cu_q is not None:
        words[_FCUQ] = cu_q.data_ptr()
    if cu_k is not None:
        words[_FCUK] = cu_k.data_ptr()
    if used_q is not None:
        words[_FUSEDQ] = used_q.data_ptr()
    if used_k is not None:
        words[_FUSEDK] = used_k.data_ptr()
    if call.device_index >= 0:
        words[_FSTREAM] = _raw_stream(call.device_index)
    if call.workspace_size:
        workspace = q.new_empty(call.workspace_size, dtype=torch.uint8)
        words[_FWORKSPACE] = workspace.data_ptr()
    if call.checked is not _checked:
        call.check(_checked)
    status = call.run(call.context, call.address)
    if status:
        raise _library.failure(status)
    return out, lse


# ---- backward ------------------------------------------------------------------------------------------------------------------


def _backward_call(q, tensors, lengths, options):
    call = Call(_library.load().vf_backward, BackwardArgs(), q, tensors, lengths, options)
    call.shapes = tuple(tensors[name].shape for name in ("q", "k", "v"))
    for name, shape in zip(("dq", "dk", "dv"), call.shapes):
        _describe_output(getattr(call.args, name), name, shape, q.dtype)
    return call


def _new_backward(key, q, tensors, lengths, options):
    call = _backward_call(q, tensors, lengths, options)
    call.measure(_library.load().vf_backward_workspace_size)
    return call.keep(key)


def backward(dout, dlse, q, k, v, out, lse, cu_q, cu_k, used_q, used_k, options):
    """(dq, dk, dv). `dlse` may be None; the last dimension of `dout` must be contiguous."""
    key = (
        key_of(q, k, v, cu_q, cu_k, used_q, used_k, options, None),
        out.shape, out.stride(), lse.stride(), dout.shape, dout.stride(), dout.dtype,
        None if dlse is None else (dlse.shape, dlse.stride(), dlse.dtype),
    )  # fmt: skip
    call = kept(key)
    if call is None:
        tensors = {"q": q, "k": k, "v": v, "o": out, "lse": lse, "dout": dout, "dlse": dlse}
        call = _new_backward(key, q, tensors, _lengths(cu_q, cu_k, used_q, used_k), options)
    shape_q, shape_k, shape_v = call.shapes
    dq, dk, dv = q.new_empty(shape_q), k.new_empty(shape_k), v.new_empty(shape_v)
    words = call.words
    words[_BQ] = q.data_ptr()
    words[_BK] = k.data_ptr()
    words[_BV] = v.data_ptr()
    words[_BO] = out.data_ptr()
    words[_BLSE] = lse.data_ptr()
    words[_BDOUT] = dout.data_ptr()
    if dlse is not None:
        words[_BDLSE] = dlse.data_ptr()
    words[_BDQ] = dq.data_ptr()
    words[_BDK] = dk.data_ptr()
    words[_BDV] = dv.data_ptr()
    if cu_q is not None:
        words[_BCUQ] = cu_q.data_ptr()
    if cu_k is not None:
        words[_BCUK] = cu_k.data_ptr()
    if used_q is not None:
        words[_BUSEDQ] = used_q.data_ptr()
    if used_k is not None:
        words[_BUSEDK] = used_k.data_ptr()
    if call.device_index >= 0:
        words[_BSTREAM] = _raw_stream(call.device_index)
    if call.workspace_size:
        workspace = q.new_empty(call.workspace_size, dtype=torch.uint8)
        words[_BWORKSPACE] = workspace.data_ptr()
    if call.checked is not _checked:
        call.check(_checked)
    status = call.run(call.context, call.address)
    if status:
        raise _library.failure(status)
    return dq, dk, dv


# ---- questions -----------------------------------------------------------------------------------------------------------------


def question(q, k, v, cu_q, cu_k, used_q, used_k, options, is_backward):
    """A call to ask about: only q, k and v have pointers, for their alignment; what autograd would make is contiguous."""
    lengths = _lengths(cu_q, cu_k, used_q, used_k)
    if not is_backward:
        call, places = _forward_call(q, k, v, lengths, options, True), _F
    else:
        call, places = _backward_call(q, {"q": q, "k": k, "v": v}, lengths, options), _B
        for name in ("o", "dout"):
            _describe_output(getattr(call.args, name), name, (*q.shape[:-1], v.shape[-1]), q.dtype)
        _describe_output(call.args.lse, "lse", lse_shape(q.shape), torch.float32)
    for place, tensor in zip(places, (q, k, v)):
        call.words[place] = tensor.data_ptr()
    return call
