"""What the functions accept, return and refuse; nothing about numbers beyond equality."""

import ctypes
import inspect
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from problems import cumulative

import varflash
from varflash import InvalidArgument, Unsupported, _flash, _library, fa3, fa4, flash_attn_func, flash_attn_varlen_func, varlen_attn

LENGTHS = [5, 0, 9]


def operands(device, heads_k=2, dim=32, dtype=torch.bfloat16, rows=14):
    q = torch.randn(rows, 4, dim, device=device, dtype=dtype)
    k, v = (torch.randn(rows, heads_k, dim, device=device, dtype=dtype) for _ in range(2))
    return q, k, v, cumulative(LENGTHS, device)


def test_defaults_and_returns(device):
    q, k, v, cu = operands(device)
    out = flash_attn_varlen_func(q, k, v, cu, cu)
    assert out.shape == q.shape and out.is_contiguous()
    assert torch.equal(out, flash_attn_varlen_func(q, k, v, cu, cu, 9, 9))
    three = flash_attn_varlen_func(q, k, v, cu, cu, return_attn_probs=True)
    assert len(three) == 3 and three[1].shape == (4, 14) and three[1].dtype == torch.float32 and three[2] is None
    assert all(torch.equal(a, b) for a, b in zip(three, flash_attn_varlen_func(q, k, v, cu, cu, return_lse=True)))


def test_versions_agree(device):
    q, k, v, cu = operands(device)
    used = torch.tensor([3, 0, 9], dtype=torch.int32, device=device)
    keywords = dict(seqused_q=used, seqused_k=used, softmax_scale=0.3, causal=True, window_size=(4, -1), softcap=3.0)
    two = flash_attn_varlen_func(q, k, v, cu, cu, return_lse=True, **keywords)
    three = fa3.flash_attn_varlen_func(
        q, k, v, cu, cu, 9, 9, used, used, 0.3, True, window_size=(4, -1), softcap=3.0, return_attn_probs=True
    )
    four = fa4.flash_attn_varlen_func(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, return_lse=True, **{**keywords, "window_size": (4, None)})
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(two, three, four))
    assert fa4.flash_attn_func(q[None], k[None], v[None])[1] is None


def test_batched_is_packed(device):
    q, k, v, cu = operands(device, rows=15)
    split = [t.view(3, 5, *t.shape[1:]) for t in (q, k, v)]
    cu = cumulative([5, 5, 5], device)
    out, lse = flash_attn_func(*split, causal=True, return_lse=True)
    packed, packed_lse = flash_attn_varlen_func(q, k, v, cu, cu, causal=True, return_lse=True)
    assert lse.shape == (3, 4, 5)
    assert torch.equal(out.flatten(0, 1), packed) and torch.equal(lse.transpose(0, 1).flatten(1), packed_lse)


def test_packed_projections(device):
    q, k, v, cu = operands(device, heads_k=4)
    qkv, kv = torch.stack((q, k, v), 1), torch.stack((k, v), 1)
    expected = flash_attn_varlen_func(q, k, v, cu, cu, 9, 9, 0.0, 0.3, True)
    with varflash.copies(False):
        assert torch.equal(varflash.flash_attn_varlen_qkvpacked_func(qkv, cu, 9, 0.0, 0.3, True), expected)
        assert torch.equal(varflash.flash_attn_varlen_kvpacked_func(q, kv, cu, cu, 9, 9, 0.0, 0.3, True), expected)
    expected = flash_attn_func(q[None], k[None], v[None], 0.0, 0.3, causal=True)
    assert torch.equal(varflash.flash_attn_qkvpacked_func(qkv[None], 0.0, 0.3, causal=True), expected)
    assert torch.equal(varflash.flash_attn_kvpacked_func(q[None], kv[None], 0.0, 0.3, causal=True), expected)


def test_cache(device):
    """Steps of generation, one token and several at once, equal attention over what is there by then."""
    room, lengths = 20, [7, 0, 12]
    q, k, v = (torch.randn(3, room, heads, 32, device=device, dtype=torch.bfloat16) for heads in (4, 2, 2))
    k_cache, v_cache = (torch.full_like(t, torch.nan) for t in (k, v))
    for b, n in enumerate(lengths):
        k_cache[b, :n], v_cache[b, :n] = k[b, :n], v[b, :n]
    for count in (1, 4):
        at = [slice(n, n + count) for n in lengths]
        new = [torch.stack([t[b, rows] for b, rows in enumerate(at)]) for t in (q, k, v)]
        used = torch.tensor(lengths, dtype=torch.int32, device=device)
        out, lse = varflash.flash_attn_with_kvcache(
            new[0], k_cache, v_cache, *new[1:], cache_seqlens=used, causal=True, return_softmax_lse=True
        )
        lengths = [n + count for n in lengths]
        expected = flash_attn_func(new[0], k, v, causal=True, seqused_k=used + count, return_lse=True)
        assert torch.equal(out, expected[0]) and torch.equal(lse, expected[1])
        assert torch.equal(varflash.flash_attn_with_kvcache(new[0], k_cache, v_cache, cache_seqlens=used + count, causal=True), out)
    whole = varflash.flash_attn_with_kvcache(q[:, :1], k, v, cache_seqlens=room)
    assert torch.equal(whole, flash_attn_func(q[:, :1], k, v))
    with pytest.raises(Unsupported, match="rotary_cos"):
        varflash.flash_attn_with_kvcache(q, k, v, rotary_cos=k)
    with pytest.raises(InvalidArgument, match="cache_seqlens"):
        varflash.flash_attn_with_kvcache(q, k, v, k, v)


def test_checked_mode_names_the_index(device):
    q, k, v, cu = operands(device)
    expected = flash_attn_varlen_func(q, k, v, cu, cu)
    broken = torch.tensor([0, 5, 3, 14], dtype=torch.int32, device=device)
    with varflash.checked():
        assert torch.equal(flash_attn_varlen_func(q, k, v, cu, cu), expected)
        with pytest.raises(varflash.VarflashError, match=r"cu_seqlens_k\[2\]") as error:
            flash_attn_varlen_func(q, k, v, cu, broken)
        assert error.value.status == "VF_ERROR_LENGTHS"
        with varflash.checked(False):
            assert torch.equal(flash_attn_varlen_func(q, k, v, cu, cu), expected)
    assert torch.equal(flash_attn_varlen_func(q, k, v, cu, cu), expected)


def test_varlen_attn(device):
    q, k, v, cu = operands(device, heads_k=4)
    for window, causal in (((-1, -1), False), ((-1, 0), True)):
        out, lse = varlen_attn(q, k, v, cu, cu, 9, 9, return_aux=varflash.AuxRequest(lse=True), window_size=window, scale=0.2)
        other, other_lse, _ = flash_attn_varlen_func(q, k, v, cu, cu, softmax_scale=0.2, causal=causal, return_attn_probs=True)
        assert torch.equal(out, other) and torch.equal(lse, other_lse)
    # Up to 2.11 there is no enable_gqa, and fewer key heads are taken; later it must be said.
    grouped = varlen_attn(q, k[:, :2], v[:, :2], cu, cu, 9, 9)
    assert torch.equal(varlen_attn(q, k[:, :2], v[:, :2], cu, cu, 9, 9, enable_gqa=True), grouped)
    # PyTorch 2.10's way.
    assert torch.equal(varlen_attn(q, k, v, cu, cu, 9, 9, True, scale=0.2), out)


def test_signature_of_torch():
    torch_varlen = pytest.importorskip("torch.nn.attention.varlen").varlen_attn
    ours = inspect.signature(varlen_attn).parameters
    for place, (name, theirs) in enumerate(inspect.signature(torch_varlen).parameters.items()):
        assert name in ours and ours[name].default in (theirs.default, None), name
        assert theirs.kind == theirs.KEYWORD_ONLY or list(ours)[place] == name, name


# Order and defaults of each version's functions: what a call by position, or one that leaves things out, relies on. Lengths that they
# demand may be left out here.
_TWO = (
    "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, "
    "return_attn_probs=False"
)
_THREE = (
    "softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1), attention_chunk=0, "
    "softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False"
)
_FOUR = (
    "softmax_scale=None, causal=False, window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1, pack_gqa=None, "
    "deterministic=False"
)
_LONGEST = "max_seqlen_q=None, max_seqlen_k=None"
SIGNATURES = [
    (flash_attn_func, f"q, k, v, {_TWO}"),
    (flash_attn_varlen_func, f"q, k, v, cu_seqlens_q=None, cu_seqlens_k=None, {_LONGEST}, {_TWO}, block_table=None"),
    (
        varflash.flash_attn_with_kvcache,
        "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None, "
        "cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
        "rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False",
    ),
    (fa3.flash_attn_func, f"q, k, v, {_THREE}"),
    (fa3.flash_attn_varlen_func, f"q, k, v, cu_seqlens_q, cu_seqlens_k, {_LONGEST}, seqused_q=None, seqused_k=None, {_THREE}"),
    (fa4.flash_attn_func, f"q, k, v, qv=None, gather_kv_indices=None, {_FOUR}"),
    (
        fa4.flash_attn_varlen_func,
        f"q, k, v, qv=None, cu_seqlens_q=None, cu_seqlens_k=None, {_LONGEST}, min_seqlen_k=None, "
        f"seqused_q=None, seqused_k=None, gather_kv_indices=None, page_table=None, {_FOUR}",
    ),
]


@pytest.mark.parametrize("function, theirs", SIGNATURES, ids=[f"{f.__module__}.{f.__name__}" for f, _ in SIGNATURES])
def test_signatures(function, theirs):
    ours = inspect.signature(function)
    positional = [p for p in ours.parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
    assert str(ours.replace(parameters=positional)) == f"({theirs})"


def test_migration_table_names_every_argument():
    page = Path(__file__).resolve().parents[3] / "docs/pytorch.md"
    if not page.exists():
        pytest.skip("needs the page")
    named = set(re.findall(r"`(\w+)`", page.read_text()))
    arguments = {*_flash._HINTS, *_flash._UNSUPPORTED}
    for function, _ in SIGNATURES:
        arguments |= {p.name for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_KEYWORD}
    assert arguments - named == set()


def test_refusals(device):
    q, k, v, cu = operands(device)
    for arguments, word in [
        (dict(dropout_p=0.1), "dropout"),
        (dict(alibi_slopes=torch.ones(4)), "ALiBi"),
        (dict(block_table=cu), "paged"),
        (dict(qv=q), "qv"),
        (dict(attention_chunk=4), "attention_chunk"),
        (dict(learnable_sink=torch.ones(4)), "sink"),
        (dict(score_mod=lambda x: x), "score_mod"),
    ]:
        with pytest.raises(Unsupported, match=word):
            flash_attn_varlen_func(q, k, v, cu, cu, **arguments)
    with pytest.raises(Unsupported, match="order"):  # FlashAttention-3's fourth argument, its scale, given by position
        flash_attn_func(q[None], k[None], v[None], 0.125)
    with pytest.raises(TypeError, match="no_such"):
        flash_attn_varlen_func(q, k, v, cu, cu, no_such=1)
    for arguments, word in [
        (dict(window_size=(-2, 0)), "window_size: left is -2"),
        (dict(softmax_scale=0.0), "softmax_scale"),
        (dict(softcap=-1.0), "softcap"),
    ]:
        with pytest.raises(InvalidArgument, match=word):
            flash_attn_varlen_func(q, k, v, cu, cu, **arguments)
    # Asking for nothing, and hints, are fine.
    flash_attn_varlen_func(q, k, v, cu, cu, qv=None, attention_chunk=0, num_splits=3, pack_gqa=True, sm_margin=2, page_table=None)


def test_bad_tensors(device):
    q, k, v, cu = operands(device)
    for tensors, word in [
        ((q, k[:, :1].repeat(1, 3, 1), v), "multiple"),
        ((q, k.float(), v), "k: dtype"),
        ((q.double(), k.double(), v.double()), "q: dtype is torch.float64"),
        ((q[None], k, v), "q: has 4 dimensions"),
        ((q[0, 0], k, v), "q: has 1 dimensions"),
    ]:
        with pytest.raises(InvalidArgument, match=word):
            flash_attn_varlen_func(*tensors, cu, cu)
    lengths = cu.tolist()
    for call, word in [
        (lambda: flash_attn_varlen_func(q, k, v, lengths, cu), "cu_seqlens_q: is a list"),
        (lambda: flash_attn_varlen_func(q, None, v, cu, cu), "k: is None"),
        (lambda: flash_attn_varlen_func(q.float().tolist(), k, v, cu, cu), "q: is a list"),
        (lambda: flash_attn_varlen_func(q, k, v, cu, cu, window_size=3), "window_size: is 3"),
    ]:
        with pytest.raises(InvalidArgument, match=word):
            call()
    nested = torch.nested.nested_tensor([q, q], layout=torch.jagged)
    with pytest.raises(Unsupported, match="values"):
        flash_attn_func(nested, nested, nested)
    with pytest.raises(InvalidArgument, match="seqused_k"):
        flash_attn_varlen_func(q, k, v, cu, cu, seqused_k=cu)
    with pytest.raises(InvalidArgument, match="cu_seqlens_q: dtype"):
        flash_attn_varlen_func(q, k, v, cu.float(), cu)
    error = pytest.raises(Unsupported, flash_attn_func, *(torch.ones(1, 2, 1, 264, dtype=q.dtype, device=device),) * 3)
    assert error.value.status == "VF_ERROR_UNSUPPORTED" and isinstance(error.value, varflash.VarflashError)


def test_empty(device):
    q, k, v, _ = operands(device)
    for cu in (torch.zeros(1, dtype=torch.int32, device=device), torch.zeros(4, dtype=torch.int32, device=device)):
        out, lse = flash_attn_varlen_func(q, k, v, cu, cu, return_lse=True)
        assert not out.any() and lse.isneginf().all()
        assert flash_attn_varlen_func(q[:0], k[:0], v[:0], cu, cu).shape == (0, 4, 32)


def test_other_head_dims_and_strides_cost_a_copy(device):
    q, k, v, cu = operands(device, dim=40)
    whole = flash_attn_varlen_func(q, k, v, cu, cu)
    across = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    assert torch.equal(flash_attn_varlen_func(*across, cu, cu), whole)
    odd = [t[..., :37] for t in (q, k, v)]
    out = flash_attn_varlen_func(*odd, cu, cu)
    padded = [torch.nn.functional.pad(t, (0, 3)) for t in odd]
    assert torch.equal(out, flash_attn_varlen_func(*padded, cu, cu, softmax_scale=37**-0.5)[..., :37])
    with varflash.copies(False):
        flash_attn_varlen_func(q, k, v, cu, cu)
        for tensors in (across, odd):
            with pytest.raises(InvalidArgument, match="copy"):
                flash_attn_varlen_func(*tensors, cu, cu)
        # Views with contiguous rows need none, whatever their other strides.
        qkv = torch.randn(14, 3, 4, 32, device=device, dtype=q.dtype)
        flash_attn_varlen_func(*qkv.unbind(1), cu, cu)


def test_kept_calls_do_not_mix(device):
    """One process, many shapes and options in turn, each twice: the second time is the kept one."""
    results = {}
    for _ in range(2):
        for heads_k, causal, with_lse in [(1, False, True), (2, True, False), (4, True, True), (4, False, False)]:
            torch.manual_seed(7)
            q, k, v, cu = operands(device, heads_k)
            out = flash_attn_varlen_func(q, k, v, cu, cu, causal=causal, return_lse=with_lse)
            out = out[0] if with_lse else out
            key = heads_k, causal, with_lse
            assert torch.equal(results.setdefault(key, out), out)


def test_explain(device):
    q, k, v, cu = operands(device)
    report = varflash.explain(q, k, v, cu, cu, causal=True, backward=True)
    assert report["status"] == "VF_OK", report
    other = varflash.explain(q.cpu(), k.cpu(), v.cpu(), cu.cpu(), cu.cpu(), arch="sm_80")
    assert other["status"] == "VF_OK" and "sm_80" in str(other)
    refused = varflash.explain(*(torch.ones(1, 2, 1, 264, dtype=q.dtype, device=device),) * 3)
    assert refused["status"] == "VF_ERROR_UNSUPPORTED" and "256" in str(refused)


def test_structs_are_those_of_the_header(tmp_path):
    """Every field of the ctypes structs at the offset that the compiler gives it, and every enum value."""
    root = Path(__file__).resolve().parents[3]
    compiler = shutil.which("cc")
    if not compiler or not (root / "runtime/include/varflash/varflash.h").exists():
        pytest.skip("needs a C compiler and the header")
    structs = {"vf_tensor": "Tensor", "vf_problem_args": "Problem", "vf_forward_args": "ForwardArgs", "vf_backward_args": "BackwardArgs"}
    structs["vf_options"] = "_Options"
    values = {"VF_NO_EDGE": "NO_EDGE", "VF_MASK_FULL": "MASK_FULL", "VF_MASK_CAUSAL": "MASK_CAUSAL", "VF_MASK_WINDOW": "MASK_WINDOW"}
    values |= {f"VF_{name}": name for name in ("FLOAT16", "BFLOAT16", "FLOAT32", "INT32", "INT64")}
    values |= {"VF_AUTO": "SWITCH_AUTO", "VF_ON": "SWITCH_ON"}
    expected, lines = {}, []
    for c_name, name in structs.items():
        struct = getattr(_library, name)
        for field, *_ in struct._fields_:
            expected[f"offsetof({c_name}, {field})"] = getattr(struct, field).offset
        expected[f"sizeof({c_name})"] = ctypes.sizeof(struct)
    expected |= {c_name: getattr(_library, name) for c_name, name in values.items()}
    lines = [f'printf("%lld\\n", (long long)({expression}));' for expression in expected]
    source = tmp_path / "structs.c"
    source.write_text("#include <stdio.h>\n#include <varflash/varflash.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n")
    subprocess.run([compiler, f"-I{root}/runtime/include", source, "-o", tmp_path / "structs"], check=True)
    found = map(int, subprocess.run([tmp_path / "structs"], check=True, capture_output=True, text=True).stdout.split())
    assert dict(zip(expected, found)) == expected


def test_threads(device):
    q, k, v, cu = operands(device)
    expected = [flash_attn_varlen_func(q[n:], k[n:], v[n:], cu, cu, causal=True) for n in range(0, 8)]
    wrong = []

    def work(n):
        for _ in range(30):
            if not torch.equal(flash_attn_varlen_func(q[n:], k[n:], v[n:], cu, cu, causal=True), expected[n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def attention_in_worker(index):
    q, k, v, cu = operands("cpu", dtype=torch.float32)
    return flash_attn_varlen_func(q, k, v, cu, cu)[:1] * 0 + index


def test_forked_workers_may_call(device):
    """On the CPU, whatever the parent has opened before."""

    class Set(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return attention_in_worker(index)

    attention_in_worker(0)
    q, k, v, cu = operands(device)
    expected = flash_attn_varlen_func(q, k, v, cu, cu)
    loader = torch.utils.data.DataLoader(Set(), batch_size=1, num_workers=2, multiprocessing_context="fork")
    assert [int(item.flatten()[0]) for item in loader] == [0, 1, 2, 3]
    assert torch.equal(flash_attn_varlen_func(q, k, v, cu, cu), expected)


def test_import_needs_no_library(tmp_path):
    code = "import varflash; from varflash import *; varflash.fa3\ntry: varflash.__version__\nexcept OSError as e: print('missing', e)"
    code = "import varflash.fa3, varflash.fa4, " + code[7:]
    environment = {**os.environ, "VARFLASH_LIBRARY": str(tmp_path / "absent.so"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "missing" in done.stdout and "absent.so" in done.stdout, done.stderr


def test_what_the_environment_sets():
    code = """if True:
        import torch, varflash
        q = torch.zeros(5, 2, 16)
        for arguments in ((q[..., ::2], q[..., ::2], q[..., ::2], None, None), (q, q, q, [0, 5], [0, 9])):
            *tensors, cu_q, cu_k = arguments
            cu_q, cu_k = (torch.tensor(x or [0, 5], dtype=torch.int32) for x in (cu_q, cu_k))
            try:
                varflash.flash_attn_varlen_func(*tensors, cu_q, cu_k)
            except varflash.VarflashError as error:
                print(error.status, error)
    """
    environment = {**os.environ, "VARFLASH_COPIES": "error", "VARFLASH_CHECK": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert "VF_ERROR_INVALID_ARGUMENT q: stride of the last dimension is 2" in first and "VARFLASH_COPIES" in first, done
    assert second.startswith("VF_ERROR_LENGTHS") and "cu_seqlens_k[1]" in second, done
