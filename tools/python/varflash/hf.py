"""varflash as an attention implementation of Hugging Face transformers (5 or later).

    import varflash.hf
    varflash.hf.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="varlen", dtype=torch.bfloat16)

(The name holds no "flash": transformers looks for a package or a hub kernel behind every name that does.)

Packed batches come with cu_seq_lens_q/k, or with position_ids that start again, in one row or in several; padded ones with a 2-D mask,
whose real tokens are one run in every row, on either side. What a mask says beyond that is refused. Padding is not gathered away: a
padded row becomes a gap between sequences, so that lengths stay on the device. Invariant: a mask that this file cannot express raises,
it is never read as another.
"""

import torch

from ._attention import _copying
from ._flash import flash_attn_func, flash_attn_varlen_func
from ._library import Unsupported

NAME = "varlen"

# The mask functions of transformers.masking_utils that is_causal, sliding_window and the lengths say as well.
_KNOWN_MASKS = frozenset(
    (
        "causal_mask_function",
        "bidirectional_mask_function",
        "and_masks.<locals>.and_mask",
        "sliding_window_overlay.<locals>.inner_mask",
        "sliding_window_bidirectional_overlay.<locals>.inner_mask",
        "packed_sequence_mask_function.<locals>.inner_mask",
        "remap_positions_for_packed_sequence.<locals>.inner_mask",
    )
)

# What models hand to their attention besides, and what changes its result.
_UNSUPPORTED = {
    "s_aux": "an attention sink",
    "sinks": "an attention sink",
    "position_bias": "a bias of the scores",
    "indices": "a choice of keys",
    "block_indices": "a choice of keys",
}


def register():
    """Makes attn_implementation="varlen" known to transformers."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)


# ---- once a forward of the model: what of each row is real -----------------------------------------------------------------------


def _functions(function):
    """A mask function and those that it was put together from."""
    yield function
    for cell in function.__closure__ or ():
        content = cell.cell_contents
        for inner in content if isinstance(content, (tuple, list)) else (content,):
            if callable(inner) and hasattr(inner, "__closure__"):
                yield from _functions(inner)


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None, device=None, **others):
    """None if every row of keys is real, else int32 [batch, 1, 1, 3]: the first real key, how many there are, and where the queries end.

    Four dimensions, because transformers hands on such masks as they are, and makes new ones of others.
    """
    if not torch.compiler.is_compiling():
        for function in _functions(mask_function) if mask_function is not None else ():
            if function.__qualname__ not in _KNOWN_MASKS:
                raise Unsupported(f"transformers asks for a mask of its own ({function.__qualname__}); use 'sdpa' or 'flex_attention'")
    if attention_mask is None:
        # A static cache holds more rows than there are tokens.
        if isinstance(q_offset, int) and q_offset + q_length - kv_offset >= kv_length:
            return None
        used = torch.as_tensor(q_offset + q_length - kv_offset, dtype=torch.int32, device=device).clamp(max=kv_length)
        return torch.stack((torch.zeros_like(used), used, used)).expand(batch_size, 1, 1, 3)
    real = attention_mask[:, -kv_length:].to(torch.bool)
    starts = real.clone()
    starts[:, 1:] &= ~real[:, :-1]
    torch._assert_async((starts.sum(1) <= 1).all(), "varflash: the real tokens of a row must follow each other in the attention mask")
    used = real.sum(1)
    return torch.stack((real.int().argmax(1), used, torch.full_like(used, real.shape[1])), 1).int()[:, None, None]


# ---- once a layer ----------------------------------------------------------------------------------------------------------------


def _kept(tensor, key, make):
    """make(), once for all layers that are given the same tensor. A trace makes it each time; the compiler finds them equal."""
    if torch.compiler.is_compiling():
        return make()
    kept = tensor.__dict__.setdefault("_varflash", {})
    key = key, 0 if tensor.is_inference() else tensor._version
    if key not in kept:
        kept[key] = make()
    return kept[key]


def _rows(tensor, name, differentiable):
    """[batch, heads, rows, dim] as packed rows, and how many rows further the next batch entry begins."""
    batch, heads, rows, dim = tensor.shape
    across, head, row, _ = tensor.stride()
    if not differentiable and row > 0 and across % row == 0 and across >= rows * row:
        # A cache as it lies in memory: entry b begins at row b * pitch, and what lies between belongs to other heads.
        pitch = across // row
        shape, strides = ((batch - 1) * pitch + rows, heads, dim), (row, head, 1)
        return tensor.as_strided(shape, strides), pitch
    if batch > 1 and rows > 1 and across != rows * row:
        _copying(name, "a batch in this memory order cannot be seen as packed rows")
    return tensor.transpose(1, 2).flatten(0, 1), rows


def _slots(first, used, rows, pitch):
    """cu_seqlens and seqused: an empty sequence over each gap, then the real tokens of the row."""
    begin = torch.arange(first.shape[0], dtype=torch.int32, device=first.device) * pitch
    cu = torch.stack((begin + first, begin + rows), 1).flatten()
    return torch.cat((cu.new_zeros(1), cu)), torch.stack((torch.zeros_like(used), used), 1).flatten()


def _padded(query, key, value, lengths, options):
    rows_q, rows_k = query.shape[2], key.shape[2]
    differentiable = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    q, _ = _rows(query, "query", True)
    (k, pitch_k), (v, pitch_v) = _rows(key, "key", differentiable), _rows(value, "value", differentiable)
    if pitch_k != pitch_v or k.shape[0] != v.shape[0]:
        (k, pitch_k), (v, _) = _rows(key, "key", True), _rows(value, "value", True)

    def make():
        first, used, end = lengths[:, 0, 0].unbind(1)
        # The last query belongs to key end - 1; the real ones among them end where the real keys do.
        first_q = (first + rows_q - end).clamp(min=0)
        used_q = ((first + used + rows_q - end) - first_q).clamp(min=0)
        return *_slots(first_q, used_q, rows_q, rows_q), *_slots(first, used, rows_k, pitch_k)

    cu_q, used_q, cu_k, used_k = _kept(lengths, (rows_q, rows_k, pitch_k), make)
    out = flash_attn_varlen_func(q, k, v, cu_q, cu_k, seqused_q=used_q, seqused_k=used_k, **options)
    return out.view(query.shape[0], rows_q, *out.shape[1:])


def _boundaries(position_ids, batch):
    """cu_seqlens of rows whose positions start again, or None if they never do. Asks the device, once for all layers; a trace cannot, and
    takes a sequence for every token, most of them empty."""
    positions = position_ids.expand(batch, -1)
    tokens = positions.numel()
    starts = torch.ones_like(positions, dtype=torch.bool)
    starts[:, 1:] = positions[:, 1:] != positions[:, :-1] + 1
    starts = starts.flatten()
    if torch.compiler.is_compiling():
        index = torch.arange(tokens, device=positions.device)
        cu = torch.where(starts, index, tokens).sort().values
        return torch.nn.functional.pad(cu, (0, 1), value=tokens).int()
    index = starts.nonzero().flatten()
    return None if index.shape[0] == batch else torch.nn.functional.pad(index, (0, 1), value=tokens).int()


def _may_start_again(position_ids, batch, rows):
    """A trace takes one row of positions for several of a batch to be the model's own, which never do."""
    if position_ids is None or position_ids.dim() != 2 or position_ids.shape[-1] != rows or rows < 2:
        return False
    return not torch.compiler.is_compiling() or position_ids.shape[0] == batch


def attention(
    module,
    query,
    key,
    value,
    attention_mask,
    dropout=0.0,
    scaling=None,
    sliding_window=None,
    softcap=None,
    is_causal=None,
    deterministic=False,
    position_ids=None,
    cu_seq_lens_q=None,
    cu_seq_lens_k=None,
    **others,
):
    """The attention function that transformers calls: query [batch, heads, rows, dim], `attention_mask` what mask() returned."""
    if dropout:
        raise Unsupported(f"dropout: is {dropout}; set attention_dropout to 0 in the configuration")
    for name, what in _UNSUPPORTED.items():
        if others.get(name) is not None:
            raise Unsupported(f"{name}: {what} is not supported; use 'sdpa', 'eager' or 'flex_attention'")
    if attention_mask is not None and (attention_mask.dtype is not torch.int32 or attention_mask.dim() != 4):
        found = f"{attention_mask.dtype} with {attention_mask.dim()} dimensions"
        raise Unsupported(
            f"attention_mask: is {found}; a 2-D mask of real tokens that the model gives to transformers is possible, or none"
        )
    if query.dtype is torch.float32 and query.device.type != "cpu" and not torch.is_autocast_enabled(query.device.type):
        # Layers that some trainers keep in float32 hand on float32; the projections know the type of the model.
        dtype = next(layer.weight.dtype for layer in module.modules() if isinstance(layer, torch.nn.Linear))
        _copying("query", f"dtype is torch.float32, that of the module's projections {dtype}")
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    causal = module.is_causal if is_causal is None else is_causal
    edge = -1 if sliding_window is None else sliding_window - 1
    options = dict(softmax_scale=scaling, causal=causal, softcap=softcap or 0.0, deterministic=deterministic)
    options["window_size"] = (edge, 0 if causal else edge)
    if attention_mask is not None:
        return _padded(query, key, value, attention_mask, options), None
    q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    batch, rows = q.shape[:2]
    if cu_seq_lens_q is None and rows == k.shape[1] and _may_start_again(position_ids, batch, rows):
        cu_seq_lens_q = cu_seq_lens_k = _kept(position_ids, ("boundaries", batch), lambda: _boundaries(position_ids, batch))
    if cu_seq_lens_q is None:
        return flash_attn_func(q, k, v, **options), None
    (q, _), (k, _), (v, _) = (_rows(t, name, True) for t, name in ((query, "query"), (key, "key"), (value, "value")))
    out = flash_attn_varlen_func(q, k, v, cu_seq_lens_q, cu_seq_lens_k, **options)
    return out.view(query.shape[0], -1, *out.shape[1:]), None
