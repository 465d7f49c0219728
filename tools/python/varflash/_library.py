"""libvarflash.so by ctypes: where it is found, the structs of varflash.h, statuses as exceptions, one context a backend.

Knows nothing of torch. Invariant: the structs are those of version 1.0 of the layout (struct_size 0), which every later library reads.
"""

import ctypes
import ctypes.util
import os
import threading
from ctypes import c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

NO_EDGE = (1 << 63) - 1
FLOAT16, BFLOAT16, FLOAT32, INT32, INT64 = 1, 2, 3, 4, 5
MASK_FULL, MASK_CAUSAL, MASK_WINDOW = 0, 1, 2
SWITCH_AUTO, SWITCH_ON = 0, 1
BACKENDS = {"cuda": 1, "cpu": 2}


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("ndim", c_int), ("shape", c_int64 * 4), ("stride", c_int64 * 4)]


class Problem(ctypes.Structure):
    _fields_ = [
        ("mask", c_int),
        ("window_left", c_int64),
        ("window_right", c_int64),
        ("softmax_scale", c_double),
        ("softcap", c_double),
        ("deterministic", c_int),
        ("fill", c_int),
        ("cu_seqlens_q", Tensor),
        ("cu_seqlens_k", Tensor),
        ("seqused_q", Tensor),
        ("seqused_k", Tensor),
        ("max_seqlen_q", c_int64),
        ("max_seqlen_k", c_int64),
        ("workspace", c_void_p),
        ("workspace_size", c_size_t),
        ("stream", c_void_p),
        ("device", c_int),
        ("check", c_int),
        ("flags", c_uint32),
    ]


def _args(*tensors):
    return [("struct_size", c_size_t), *((name, Tensor) for name in tensors), ("problem", Problem)]


class ForwardArgs(ctypes.Structure):
    _fields_ = _args("q", "k", "v", "o", "lse")


class BackwardArgs(ctypes.Structure):
    _fields_ = _args("q", "k", "v", "o", "lse", "dout", "dlse", "dq", "dk", "dv")


class _Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("backend", c_int),
        ("log", c_void_p),
        ("log_user", c_void_p),
        ("log_level", c_int),
        ("cpu_threads", c_int),
        ("cache_dir", c_char_p),
        ("config", c_char_p),
        ("bundles", c_void_p),
        ("bundle_count", c_size_t),
    ]


# ---- failures ------------------------------------------------------------------------------------------------------------------


class VarflashError(RuntimeError):
    """A call failed; `status` is the name of its vf_status. The text says what was found and what is allowed."""

    status = "VF_ERROR_INTERNAL"


class InvalidArgument(VarflashError, ValueError):
    status = "VF_ERROR_INVALID_ARGUMENT"


class Unsupported(VarflashError, NotImplementedError):
    status = "VF_ERROR_UNSUPPORTED"


_EXCEPTIONS = {1: InvalidArgument, 2: Unsupported}


def failure(status):
    """The exception of a status that a call on this thread has just returned."""
    library = load()
    error = _EXCEPTIONS.get(status, VarflashError)(library.vf_last_error().decode(errors="replace"))
    error.status = library.vf_status_name(status).decode()
    return error


# ---- the library ---------------------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_library = None
_contexts = {}


def _candidates():
    """Paths to try, in order. VARFLASH_LIBRARY alone counts where it is set."""
    if named := os.environ.get("VARFLASH_LIBRARY"):
        return [named]
    here = Path(__file__).resolve().parent
    beside = [here / "lib" / "libvarflash.so", here.parents[2] / "build" / "libvarflash.so"]
    found = ctypes.util.find_library("varflash")
    return [str(path) for path in beside if path.exists()] + ([found] if found else [])


def _open(path):
    # What the library needs and the system may not have lies beside it; once loaded, the loader finds it by its name.
    for needed in sorted(Path(path).resolve().parent.glob("libcjson.so.*")):
        ctypes.CDLL(str(needed))
    library = ctypes.CDLL(path)
    library.vf_last_error.restype = c_char_p
    library.vf_status_name.restype = c_char_p
    library.vf_open.argtypes = [c_void_p, c_void_p]
    library.vf_forward.argtypes = library.vf_backward.argtypes = [c_void_p, c_void_p]
    for name in ("vf_forward_workspace_size", "vf_backward_workspace_size"):
        getattr(library, name).argtypes = [c_void_p, c_void_p, c_void_p]
    for name in ("vf_explain_forward", "vf_explain_backward"):
        getattr(library, name).argtypes = [c_void_p, c_void_p, c_char_p, c_char_p, c_size_t, c_void_p]
    return library


def load():
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                paths = _candidates()
                if not paths:
                    raise ImportError(
                        "libvarflash.so was not found: build it (make lib), install the wheel, or name it in VARFLASH_LIBRARY"
                    )
                _library = _open(paths[0])
    return _library


def version():
    number = load().vf_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def context(backend):
    """The process's context of a backend, "cuda" or "cpu", opened when first asked for and never closed."""
    if backend not in _contexts:
        library = load()
        with _lock:
            if backend not in _contexts:
                handle = c_void_p()
                options = _Options(backend=BACKENDS[backend])
                status = library.vf_open(ctypes.byref(options), ctypes.byref(handle))
                if status:
                    raise failure(status)
                _contexts[backend] = handle.value
    return _contexts[backend]


def _forget_contexts():
    """A context must not be used after fork(): the child opens its own when it calls."""
    global _lock
    _lock = threading.Lock()
    _contexts.clear()


os.register_at_fork(after_in_child=_forget_contexts)
