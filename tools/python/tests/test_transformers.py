"""Hugging Face transformers with varflash as its attention: training on packed batches, padded batches, generation.

The yardstick is the eager implementation on padded batches: in float32 on the CPU, where both are exact to rounding, in bfloat16 on a GPU.
"""

import pytest
import torch

transformers = pytest.importorskip("transformers", minversion="5.0")

import varflash  # noqa: E402
from varflash import Unsupported, hf  # noqa: E402

hf.register()

SIZES = dict(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    max_position_embeddings=256, attention_dropout=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
LENGTHS = [37, 5, 1, 22]


def llama(attention, device):
    return build(transformers.LlamaForCausalLM, transformers.LlamaConfig(**SIZES), attention, device)


def gemma(attention, device):
    """A window that is shorter than the sequences, and a softcap."""
    config = transformers.Gemma2Config(
        **SIZES, sliding_window=8, attn_logit_softcapping=5.0, query_pre_attn_scalar=16, layer_types=["sliding_attention", "full_attention"]
    )
    return build(transformers.Gemma2ForCausalLM, config, attention, device)


def build(kind, config, attention, device):
    torch.manual_seed(3)
    config._attn_implementation = attention
    return kind(config).to(device, torch.float32 if device == "cpu" else torch.bfloat16)


def tolerance(device):
    return dict(atol=2e-4, rtol=2e-4) if device == "cpu" else dict(atol=3e-2, rtol=3e-2)


def sequences(seed, device):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 97, (n,), generator=generator).to(device) for n in LENGTHS]


def packed(parts):
    """One row, positions that start again. The first token of each part predicts, but is not predicted."""
    ids, positions = torch.cat(parts), torch.cat([torch.arange(len(p), device=p.device) for p in parts])
    labels = ids.clone()
    labels[positions == 0] = -100
    return dict(input_ids=ids[None], position_ids=positions[None], labels=labels[None])


def with_lengths(parts):
    batch = packed(parts)
    cu = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)], dtype=torch.int32, device=parts[0].device)
    return dict(batch, cu_seq_lens_q=cu, cu_seq_lens_k=cu, max_length_q=max(LENGTHS), max_length_k=max(LENGTHS))


def padded(parts, left=False):
    longest = max(map(len, parts))
    rows = [torch.nn.functional.pad(p, (longest - len(p), 0) if left else (0, longest - len(p))) for p in parts]
    ids = torch.stack(rows)
    mask = (ids != 0).long()
    labels = torch.where(mask.bool(), ids, -100)
    if left:  # The first real token is not predicted by the padding before it.
        labels[torch.arange(len(parts)), mask.argmax(1)] = -100
    return dict(input_ids=ids, attention_mask=mask, labels=labels, position_ids=(mask.cumsum(1) - 1).clamp(min=0))


def gradient(model, batch):
    model.zero_grad()
    loss = model(**batch, use_cache=False).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("family", [llama, gemma])
@pytest.mark.parametrize("form", [packed, with_lengths, padded, lambda p: padded(p, left=True)], ids=["packed", "lengths", "right", "left"])
def test_gradients(device, family, form):
    parts = sequences(0, device)
    loss, expected = gradient(family("eager", device), padded(parts))
    got_loss, got = gradient(family(hf.NAME, device), form(parts))
    torch.testing.assert_close(got_loss, loss, **tolerance(device))
    scale = max(g.abs().max().item() for g in expected.values())
    for name, grad in expected.items():
        torch.testing.assert_close(got[name] / scale, grad / scale, **tolerance(device), msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("family", [llama, gemma])
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_several_packed_rows(device, family, shared):
    """Positions that start again within the rows of a batch, each in its own places or all in the same: eager attention reads them so too."""
    parts = sequences(0, device)
    rows = [[parts[0], parts[1]], [parts[3], parts[3][:20]]]
    ids = torch.stack([torch.cat(row) for row in rows])
    starts = [[torch.arange(len(p), device=device) for p in row] for row in rows]
    positions = torch.stack([torch.cat(row) for row in starts])
    batch = dict(input_ids=ids, position_ids=positions[:1] if shared else positions, labels=ids)
    loss, expected = gradient(family("eager", device), batch)
    got_loss, got = gradient(family(hf.NAME, device), batch)
    torch.testing.assert_close(got_loss, loss, **tolerance(device))
    scale = max(g.abs().max().item() for g in expected.values())
    for name, grad in expected.items():
        torch.testing.assert_close(got[name] / scale, grad / scale, **tolerance(device), msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("family", [llama, gemma])
@pytest.mark.parametrize("form", [packed, with_lengths], ids=["packed", "lengths"])
def test_fifty_steps(device, family, form):
    """Packed with varflash beside padded with eager attention: the losses stay together."""
    losses = []
    for attention, batch in (("eager", padded), (hf.NAME, form)):
        model = family(attention, device)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
        run = []
        for step in range(50):
            optimiser.zero_grad()
            loss = model(**batch(sequences(step % 5, device)), use_cache=False).loss
            loss.backward()
            optimiser.step()
            run.append(loss.item())
        losses.append(torch.tensor(run))
    assert losses[0][-5:].mean() < losses[0][:5].mean()
    torch.testing.assert_close(losses[1], losses[0], atol=1e-3 if device == "cpu" else 5e-2, rtol=0)


@pytest.mark.parametrize("family", [llama, gemma])
@pytest.mark.parametrize("cache", [None, "static"])
def test_generation_with_left_padding(device, family, cache):
    batch = padded(sequences(1, device), left=True)
    inputs = dict(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    options = dict(max_new_tokens=12, do_sample=False, output_scores=True, return_dict_in_generate=True, eos_token_id=None)
    if cache:
        options.update(cache_implementation=cache, disable_compile=True)
    results = [family(attention, device).generate(**inputs, **options) for attention in ("eager", hf.NAME)]
    if device == "cpu":
        assert torch.equal(results[0].sequences, results[1].sequences)
    # In bfloat16 a token may differ where two are nearly as likely; up to there the scores agree.
    same = (results[0].sequences == results[1].sequences).all(0)[-12:].cumprod(0)
    for step in range(int(same.sum())):
        torch.testing.assert_close(results[1].scores[step], results[0].scores[step], **tolerance(device))


def test_steps_of_generation_copy_no_cache(device):
    """The keys and values of a padded batch are read where the cache has them."""
    model = llama(hf.NAME, device)
    batch = padded(sequences(1, device), left=True)
    with torch.no_grad():
        first = model(batch["input_ids"], attention_mask=batch["attention_mask"], position_ids=batch["position_ids"], use_cache=True)
        token = first.logits[:, -1].argmax(-1, keepdim=True)
        longer = torch.nn.functional.pad(batch["attention_mask"], (0, 1), value=1)
        with varflash.copies(False):
            model(token, attention_mask=longer, position_ids=batch["position_ids"][:, -1:] + 1, past_key_values=first.past_key_values)


def test_packed_rows_are_taken_as_they_lie(device):
    """Two rows of a batch with lengths of their own: views where memory allows, else a copy that is no secret."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    operands = [torch.randn(2, 7, heads, 16, device=device, dtype=dtype).transpose(1, 2) for heads in (4, 2, 2)]
    cu = torch.tensor([0, 3, 7, 14], dtype=torch.int32, device=device)
    module = torch.nn.Module()
    module.is_causal = True
    options = dict(cu_seq_lens_q=cu, cu_seq_lens_k=cu)
    with varflash.copies(False):
        out, _ = hf.attention(module, *operands, None, **options)
        across = [t.contiguous() for t in operands]
        with pytest.raises(varflash.InvalidArgument, match="query: a batch in this memory order"):
            hf.attention(module, *across, None, **options)
    assert torch.equal(hf.attention(module, *across, None, **options)[0], out)


def test_float32_beside_a_model_of_16_bits(device):
    """Layers that a trainer keeps in float32 hand it on; a GPU has no float32 attention."""
    if device == "cpu":
        pytest.skip("the CPU takes float32 as it is")
    module = torch.nn.Module()
    module.is_causal, module.out = True, torch.nn.Linear(16, 16, device=device, dtype=torch.bfloat16)
    operands = [torch.randn(1, 2, 5, 16, device=device) for _ in range(3)]
    assert hf.attention(module, *operands, None)[0].dtype == torch.bfloat16
    with varflash.copies(False), pytest.raises(varflash.InvalidArgument, match="query: dtype is torch.float32"):
        hf.attention(module, *operands, None)


def test_generation_without_padding_and_with_chunks(device):
    ids = torch.arange(36, device=device).view(4, 9) + 5
    for extra in ({}, {"cache_implementation": "static", "disable_compile": True}):
        results = [
            llama(attention, device).generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None, **extra)
            for attention in ("eager", hf.NAME)
        ]
        assert device != "cpu" or torch.equal(*results)


def test_compiled_generation(device):
    """What transformers does with a static cache on a GPU: one graph for every step, padded on the left."""
    from transformers.generation.configuration_utils import CompileConfig

    batch = padded(sequences(1, device), left=True)
    inputs = dict(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    results = []
    for attention in ("eager", hf.NAME):
        torch._dynamo.reset()
        config = CompileConfig(fullgraph=True) if device == "cuda" else CompileConfig(fullgraph=True, backend="aot_eager", mode=None)
        config._compile_all_devices = True  # else the CPU does not
        options = dict(max_new_tokens=8, do_sample=False, eos_token_id=None, cache_implementation="static", compile_config=config)
        results.append(gemma(attention, device).generate(**inputs, **options))
    assert device != "cpu" or torch.equal(*results)


def test_compiled(device):
    parts = sequences(0, device)
    model = llama(hf.NAME, device)
    loss, expected = gradient(model, with_lengths(parts))
    compiled = torch.compile(model, backend="inductor" if device == "cuda" else "aot_eager")
    got_loss, got = gradient(compiled, with_lengths(parts))
    torch.testing.assert_close(got_loss, loss, **tolerance(device))
    torch.testing.assert_close(got["_orig_mod.lm_head.weight"], expected["lm_head.weight"], **tolerance(device))


def test_what_is_refused(device):
    model = llama(hf.NAME, device)
    holes = torch.ones(1, 8, dtype=torch.long, device=device)
    holes[0, 3] = 0
    if device == "cpu":  # On a GPU the assertion ends the process's use of the device.
        with pytest.raises(RuntimeError, match="follow each other"):
            model(torch.ones(1, 8, dtype=torch.long, device=device), attention_mask=holes)
    with pytest.raises(Unsupported, match="dimensions"):
        model(torch.ones(1, 8, dtype=torch.long, device=device), attention_mask=torch.ones(1, 1, 8, 8, device=device, dtype=torch.bool))
    biased = transformers.T5Config(d_model=64, d_kv=16, d_ff=96, num_layers=1, num_heads=4, vocab_size=97, dropout_rate=0.0)
    ids = torch.ones(1, 8, dtype=torch.long, device=device)
    with pytest.raises(Unsupported, match="position_bias"):
        build(transformers.T5EncoderModel, biased, hf.NAME, device)(ids)
    from transformers.masking_utils import create_causal_mask

    x = torch.zeros(1, 8, 64, device=device)
    with pytest.raises(Unsupported, match="a mask of its own"):
        create_causal_mask(model.config, x, None, None, None, or_mask_function=lambda b, h, q, k: k < 3)
