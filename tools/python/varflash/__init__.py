"""varflash for PyTorch: attention over packed batches, with the functions of FlashAttention and of torch.nn.attention.varlen.

    from varflash import flash_attn_varlen_func, flash_attn_func, varlen_attn

CUDA tensors run on the GPU, CPU tensors on the CPU. Importing needs neither a GPU nor the library: that is opened by the first call.
"""

from . import _library
from ._attention import copies
from ._cache import flash_attn_with_kvcache
from ._explain import explain
from ._flash import flash_attn_func, flash_attn_varlen_func
from ._launch import checked
from ._library import InvalidArgument, Unsupported, VarflashError
from ._packed import (
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from .varlen import AuxRequest, varlen_attn

__all__ = [
    "AuxRequest",
    "InvalidArgument",
    "Unsupported",
    "VarflashError",
    "checked",
    "copies",
    "explain",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "varlen_attn",
]


def __getattr__(name):
    if name == "__version__":
        return _library.version()
    raise AttributeError(f"module 'varflash' has no attribute '{name}'")
