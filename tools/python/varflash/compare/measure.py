"""Times and errors of peers on one problem.

Times: peers take turns, several rounds; in each a peer runs back to back for a while before as many calls are timed, since a card that is
limited by its power is faster in short bursts. Errors: against float64 on a sample of (sequence, key head) pairs that is the same for all.
"""

import random
import statistics
import time

import torch

# What the float64 sample may hold: pairs of one head, and (sequence, key head) pairs, each of which costs some hundred launches.
SAMPLE_PAIRS, SAMPLE_TASKS = 400_000_000, 256


def _elapsed(function, count, device):
    """Milliseconds of `count` calls."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(count):
            function()
        return (time.perf_counter() - start) * 1e3
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def times(functions, duration, rounds, device):
    """{name: [milliseconds a call, one for each round]} of {name: function}. `duration` seconds of timing for each."""
    counts = {}
    for name, function in functions.items():
        _elapsed(function, 1, device)
        once = max(_elapsed(function, 2, device) / 2, 1e-3)
        counts[name] = min(max(1, round(duration / rounds * 1e3 / once)), 2000)
    out = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            _elapsed(function, counts[name], device)
            out[name].append(_elapsed(function, counts[name], device) / counts[name])
    return out


def summary(samples, flops):
    middle = statistics.median(samples)
    return {"ms": middle, "spread": (max(samples) - min(samples)) / middle, "tflops": flops / middle / 1e9}


# ---- errors --------------------------------------------------------------------------------------------------------------------


def _sample(problem):
    """(first q row, rows, first k row, rows, key head), in a random order, as far as the limits go."""
    spans, row_q, row_k = [], 0, 0
    for n, m in zip(problem.lengths_q, problem.lengths_k):
        spans.append((row_q, n, row_k, m))
        row_q, row_k = row_q + n, row_k + m
    chooser, group = random.Random(1), problem.flags.heads_q // problem.flags.heads_k
    tasks = [(*span, head) for span in spans if span[1] and span[3] for head in range(problem.flags.heads_k)]
    left = SAMPLE_PAIRS
    for task in chooser.sample(tasks, min(len(tasks), SAMPLE_TASKS)):
        if left <= 0:
            return
        left -= task[1] * task[3] * group
        yield task


def _exact(problem, q, k, v, dout):
    """float64 o, dq (one query head) and that head's share of dk, dv."""
    n, m = q.shape[0], k.shape[0]
    left, right = problem.window
    i = torch.arange(n, device=q.device)[:, None] + (m - n)
    j = torch.arange(m, device=q.device)[None]
    hidden = torch.zeros(n, m, dtype=torch.bool, device=q.device)
    if left >= 0:
        hidden |= j < i - left
    if right >= 0:
        hidden |= j > i + right
    raw = (q @ k.T) * problem.scale
    cap = problem.flags.softcap
    capped = cap * torch.tanh(raw / cap) if cap else raw
    x = capped.masked_fill(hidden, -torch.inf)
    p = torch.nan_to_num(torch.softmax(x, -1), 0.0)
    o = p @ v
    dp = dout @ v.T
    ds = p * (dp - (dout * o).sum(-1, keepdim=True)) * problem.scale
    if cap:
        ds = ds * (1 - (capped / cap) ** 2)
    return o, ds @ k, ds.T @ q, p.T @ dout


def errors(problem, tensors, results):
    """{peer: {operand: {"max": ..., "rms": ...}}}; rms relative to the exact rms. `results` holds o [, dq, dk, dv] of each."""
    names = ("o", "dq", "dk", "dv")
    q, k, v, dout = tensors
    zero = q.new_zeros((), dtype=torch.float64)  # sums stay on the device: a GPU is asked once, at the end
    worst, squares = ({peer: dict.fromkeys(names, zero) for peer in results} for _ in range(2))
    exact_squares = dict.fromkeys(names, zero)
    group = problem.flags.heads_q // problem.flags.heads_k
    for a, n, b, m, head in _sample(problem):
        keys, values = k[b : b + m, head].double(), v[b : b + m, head].double()
        parts = [
            _exact(problem, q[a : a + n, h].double(), keys, values, dout[a : a + n, h].double())
            for h in range(head * group, (head + 1) * group)
        ]
        exact = {
            "o": torch.stack([p[0] for p in parts], 1),
            "dq": torch.stack([p[1] for p in parts], 1),
            "dk": sum(p[2] for p in parts),
            "dv": sum(p[3] for p in parts),
        }
        for name in names:
            exact_squares[name] = exact_squares[name] + exact[name].square().sum()
        for peer, found in results.items():
            for name, tensor in zip(names, found):
                mine = tensor[a : a + n, head * group : (head + 1) * group] if name in ("o", "dq") else tensor[b : b + m, head]
                error = (mine.double() - exact[name]).abs()
                worst[peer][name] = torch.maximum(worst[peer][name], error.max())
                squares[peer][name] = squares[peer][name] + error.square().sum()
    return {
        peer: {
            name: {
                "max": worst[peer][name].item(),
                "rms": (squares[peer][name].item() / max(exact_squares[name].item(), 1e-300)) ** 0.5,
            }
            for name, _ in zip(names, found)
        }
        for peer, found in results.items()
    }
