"""What only a GPU shows: streams, graphs, devices, waiting, memory, and the cost of a call."""

import importlib.util
import statistics
import threading
import time

import pytest
import torch
from problems import cumulative

import varflash
from varflash import Unsupported, flash_attn_func, flash_attn_varlen_func

DEVICE = "cuda"


def operands(lengths, heads=(8, 2), dim=64, rows=None, dtype=torch.bfloat16, device=DEVICE, grad=True):
    rows = rows or sum(lengths)
    q = torch.randn(rows, heads[0], dim, device=device, dtype=dtype)
    k, v = (torch.randn(rows, heads[1], dim, device=device, dtype=dtype) for _ in range(2))
    return [t.requires_grad_(grad) for t in (q, k, v)] + [cumulative(lengths, device)]


def step(q, k, v, cu, dout):
    out, lse = flash_attn_varlen_func(q, k, v, cu, cu, causal=True, deterministic=True, return_lse=True)
    return [out, lse, *torch.autograd.grad(out, (q, k, v), dout)]


def equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_nothing_waits():
    """Neither pass waits for the device, whatever is given or left out."""
    q, k, v, cu = operands([100, 0, 300])
    dout = torch.randn_like(q)

    def work():
        step(q, k, v, cu, dout)
        flash_attn_varlen_func(q, k, v, cu, cu, torch.tensor(300), None, seqused_q=cu[1:] - cu[:-1])

    work()  # compiles and loads
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(int(2e9))  # about a second of work that a wait would wait for
        start = time.perf_counter()
        work()
        taken = time.perf_counter() - start
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert taken < 0.5
    torch.cuda.synchronize()


def test_graph_with_other_lengths_on_replay():
    rows, batch = 1000, 4
    first, others = [300, 0, 500, 200], ([1, 2, 3, 4], [0, 0, 0, 1000], [250] * 4, [600, 0, 0, 17])
    q, k, v, cu = operands(first, rows=rows)
    dout = torch.randn_like(q)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step(q, k, v, cu, dout)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step(q, k, v, cu, dout)
    for lengths in (first, *others):
        assert len(lengths) == batch
        with torch.no_grad():
            for t in (q, k, v):
                t.normal_()
            cu.copy_(cumulative(lengths, DEVICE))
        graph.replay()
        assert equal(results, step(q, k, v, cu, dout)), lengths


def test_make_graphed_callables():
    q, k, v, cu = operands([200, 100])

    class Block(torch.nn.Module):
        def forward(self, q, k, v):
            return flash_attn_varlen_func(q, k, v, cu, cu, causal=True, deterministic=True)

    plain = Block()(q, k, v)
    dout = torch.randn_like(plain)
    expected = [plain, *torch.autograd.grad(plain, (q, k, v), dout)]
    graphed = torch.cuda.make_graphed_callables(Block(), tuple(t.detach().clone().requires_grad_() for t in (q, k, v)))
    out = graphed(q, k, v)
    assert equal(expected, [out, *torch.autograd.grad(out, (q, k, v), dout)])


def test_compiled_into_graphs():
    """mode="reduce-overhead": inductor captures the operators, forward and backward, and replays them with other values."""

    @torch.compile(mode="reduce-overhead", fullgraph=True)
    def block(q, k, v, cu):
        return flash_attn_varlen_func(q, k, v, cu, cu, causal=True, deterministic=True) * 2

    for lengths in ([200, 100], [1, 299], [300, 0], [150, 150]):
        q, k, v, cu = operands(lengths)
        plain = flash_attn_varlen_func(q, k, v, cu, cu, causal=True, deterministic=True) * 2
        dout = torch.randn_like(plain)
        expected = [plain, *torch.autograd.grad(plain, (q, k, v), dout)]
        torch.compiler.cudagraph_mark_step_begin()
        out = block(q, k, v, cu)
        kept = out.clone()
        assert equal(expected, [kept, *torch.autograd.grad(out, (q, k, v), dout)]), lengths


def test_cold_kernel_in_a_capture_is_said_so():
    """A head dim that nothing else here uses. The capture stays usable, and the call works after it."""
    q, k, v, cu = operands([50], dim=216, grad=False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = q.float().sum()
        with pytest.raises(varflash.VarflashError) as error:
            flash_attn_varlen_func(q, k, v, cu, cu)
    assert error.value.status == "VF_ERROR_CAPTURE"
    graph.replay()
    assert total.isfinite()
    flash_attn_varlen_func(q, k, v, cu, cu)


def test_current_stream():
    """Work ordered before and after on a side stream alone: what runs on another stream would read or be read too early."""
    q, k, v, cu = operands([3000, 1000], heads=(16, 16), grad=False)
    expected = flash_attn_varlen_func(q, k, v, cu, cu)
    stream = torch.cuda.Stream()
    late = [torch.zeros_like(t) for t in (q, k, v)]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(int(1e8))
        for a, b in zip(late, (q, k, v)):
            a.copy_(b)
        out = flash_attn_varlen_func(*late, cu, cu).clone()
    stream.synchronize()
    assert torch.equal(out, expected)


def test_memory_freed_at_once_is_safe():
    q, k, v, cu = operands([2000, 1000], heads=(16, 4))
    dout = torch.randn_like(q)
    expected = step(q, k, v, cu, dout)
    for _ in range(20):
        copies = [t.detach().clone().requires_grad_() for t in (q, k, v)]
        got = step(*copies, cu.clone(), dout.clone())
        del copies
        torch.full((6000, 16, 64), torch.nan, device=DEVICE, dtype=torch.bfloat16)
        assert equal(got, expected)


def test_memory_of_another_stream():
    """Operands made on one stream, used on another, recorded there and freed at once."""
    q, k, v, cu = operands([2000, 1000], heads=(16, 4))
    dout = torch.randn_like(q)
    expected = step(q, k, v, cu, dout)
    here, side = torch.cuda.current_stream(), torch.cuda.Stream()
    for _ in range(20):
        copies = [t.detach().clone().requires_grad_() for t in (q, k, v)]
        side.wait_stream(here)
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
            got = step(*copies, cu, dout)
        while copies:
            copies.pop().record_stream(side)
        torch.full((6000, 16, 64), torch.nan, device=DEVICE, dtype=torch.bfloat16)
        here.wait_stream(side)
        assert equal(got, expected)


def test_threads_with_streams():
    q, k, v, cu = operands([700, 300])
    dout = torch.randn_like(q)
    expected = step(q, k, v, cu, dout)
    torch.cuda.synchronize()
    wrong = []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                copies = [t.detach().clone().requires_grad_() for t in (q, k, v)]
                if not equal(step(*copies, cu, dout), expected):
                    wrong.append(1)
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one device only")
def test_device_that_is_not_current():
    results = []
    for device in ("cuda:0", "cuda:1"):
        torch.manual_seed(0)
        q, k, v, cu = (t.detach().to(device) for t in operands([300, 200]))
        tensors = [t.requires_grad_() for t in (q, k, v)]
        results.append([t.cpu() for t in step(*tensors, cu, torch.ones_like(q))])
        assert torch.cuda.current_device() == 0
    assert equal(*results)


def test_tensors_on_other_devices_are_refused():
    q, k, v, cu = operands([50], grad=False)
    with pytest.raises(varflash.InvalidArgument, match="cu_seqlens_q: is on cpu"):
        flash_attn_varlen_func(q, k, v, cu.cpu(), cu)
    with pytest.raises(Unsupported, match="fp32"):
        flash_attn_varlen_func(q.float(), k.float(), v.float(), cu, cu)


def test_cpu_and_gpu_agree():
    q, k, v, cu = operands([70, 0, 130], grad=False)
    here = flash_attn_varlen_func(q, k, v, cu, cu, causal=True)
    there = flash_attn_varlen_func(q.cpu(), k.cpu(), v.cpu(), cu.cpu(), cu.cpu(), causal=True)
    torch.testing.assert_close(here.cpu(), there, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("heads", [8, 20])
def test_image_text_block(heads, request):
    """8976 tokens of which 8612 are used, fp16, compiled: always finite, always identical, with NaN in what is unused."""
    repeats = 2000 if request.config.getoption("--long") else 100
    layer = torch.nn.Linear(heads * 128, 3 * heads * 128, device=DEVICE, dtype=torch.float16)
    x = torch.randn(8976, heads * 128, device=DEVICE, dtype=torch.float16)
    x[8612:] = torch.nan
    cu = torch.tensor([0, 8976], device=DEVICE, dtype=torch.int32)
    used = torch.tensor([8612], device=DEVICE, dtype=torch.int32)

    @torch.compile(fullgraph=True)
    def block(x, cu, used):
        q, k, v = layer(x).view(-1, 3, heads, 128).unbind(1)
        return flash_attn_varlen_func(q, k, v, cu, cu, 8976, 8976, seqused_q=used, seqused_k=used)

    traffic, other = torch.cuda.Stream(), torch.randn(64 << 20, device=DEVICE)
    with torch.no_grad():
        first = block(x, cu, used)
        different = torch.zeros((), dtype=torch.int64, device=DEVICE)
        for _ in range(repeats):
            with torch.cuda.stream(traffic):
                other.mul_(1.0001)
            different += (block(x, cu, used) != first).any()
    torch.cuda.synchronize()
    assert first.isfinite().all() and not first[8612:].any() and different.item() == 0


@pytest.mark.long
def test_attention_beside_an_mlp_in_one_linear():
    """cat([attn, mlp]) -> linear -> backward: the gradient of attn is a view with rows of 9728, beyond 2^31 elements."""
    tokens, heads, dim, mlp = 410923, 16, 96, 8192
    if torch.cuda.mem_get_info()[0] < 60 << 30:
        pytest.skip("needs 60 GB of GPU memory")
    cu = torch.tensor([0, 225304, tokens], device=DEVICE, dtype=torch.int32)
    q, k, v = (torch.randn(tokens, heads, dim, device=DEVICE, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
    hidden = torch.randn(tokens, mlp, device=DEVICE, dtype=torch.bfloat16)
    linear = torch.nn.Linear(heads * dim + mlp, 64, bias=False, device=DEVICE, dtype=torch.bfloat16)
    out = flash_attn_varlen_func(q, k, v, cu, cu, deterministic=True)
    seen = []
    out.register_hook(lambda grad: seen.append(grad))
    joined = linear(torch.cat([out.flatten(1), hidden.requires_grad_()], 1))
    joined.backward(torch.randn_like(joined))
    assert seen[0].stride() == (9728, 96, 1)
    with varflash.copies(False):
        again = torch.autograd.grad(flash_attn_varlen_func(q, k, v, cu, cu, deterministic=True), (q, k, v), seen[0].contiguous())
    assert all(torch.equal(a, b.grad) for a, b in zip(again, (q, k, v)))


def host_cost(function, repeats=300):
    """Microseconds of the host for a call, the device idle: the median of single calls."""
    for _ in range(20):
        function()
    costs = []
    for i in range(repeats):
        if i % 20 == 0:
            torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        costs.append((time.perf_counter() - start) * 1e6)
    return statistics.median(costs)


def test_host_overhead():
    """A forward call costs the host at most 20 microseconds, or what FlashAttention-2 costs in the same run: its package where that is
    installed, else the copy of it in PyTorch."""
    varlen = pytest.importorskip("torch.nn.attention.varlen").varlen_attn
    package = importlib.util.find_spec("flash_attn") and getattr(importlib.import_module("flash_attn"), "flash_attn_varlen_func", None)
    q, k, v, cu = operands([64, 64], heads=(8, 8), grad=False)
    batched = [t[None] for t in (q, k, v)]
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    costs = {
        "varflash": host_cost(lambda: flash_attn_varlen_func(q, k, v, cu, cu, 64, 64, causal=True)),
        "varflash, batched": host_cost(lambda: flash_attn_func(*batched, causal=True)),
        "varflash, with gradient": host_cost(lambda: flash_attn_varlen_func(*leaves, cu, cu, 64, 64, causal=True)),
        "torch varlen": host_cost(lambda: varlen(q, k, v, cu, cu, 64, 64, window_size=(-1, 0))),
        "torch varlen, with gradient": host_cost(lambda: varlen(*leaves, cu, cu, 64, 64, window_size=(-1, 0))),
    }
    peer = "torch varlen"
    if package:
        peer = "FlashAttention-2"
        costs[peer] = host_cost(lambda: package(q, k, v, cu, cu, 64, 64, causal=True))
        costs[f"{peer}, with gradient"] = host_cost(lambda: package(*leaves, cu, cu, 64, 64, causal=True))
    print("\nhost, microseconds a forward call:", ", ".join(f"{name} {cost:.1f}" for name, cost in costs.items()))
    assert costs["varflash"] <= max(20, costs[peer])
    assert costs["varflash, with gradient"] <= max(20, costs[f"{peer}, with gradient"])
