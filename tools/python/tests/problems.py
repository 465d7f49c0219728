"""Seeded problems for the tests: lengths, features, and the tensors that go with them."""

import random

import torch

HEADS = [(1, 1), (2, 2), (4, 2), (6, 2), (4, 1), (9, 3)]
BF16, FP16 = torch.bfloat16, torch.float16
# head_dim, head_dim_v and type go together: fewer kernels to compile for as many problems.
KINDS = [
    (64, 64, BF16), (128, 128, BF16), (72, 72, FP16), (40, 40, BF16), (8, 8, FP16),
    (96, 128, BF16), (192, 128, FP16), (80, 80, FP16), (104, 56, BF16), (256, 256, BF16),
]  # fmt: skip
LENGTHS = [0, 1, 2, 17, 63, 64, 65, 128, 129, 200]


def lengths(rng, batch, small):
    pool = [n for n in LENGTHS if n <= 65] if small else LENGTHS
    return [rng.choice(pool) if rng.random() < 0.7 else rng.randrange(pool[-1] + 1) for _ in range(batch)]


def cumulative(sizes, device, dtype=torch.int32):
    return torch.tensor([0, *torch.tensor(sizes, dtype=torch.int64).cumsum(0).tolist()], dtype=dtype, device=device)


def draw(seed, device):
    """(arguments of reference.attention, tensors q k v dout dlse) of problem number `seed`."""
    rng = random.Random(seed)
    small = device == "cpu"
    batch = rng.randrange(1, 5)
    heads_q, heads_k = rng.choice(HEADS)
    dim, dim_v, dtype = rng.choice(KINDS)
    kind = rng.choice(["packed", "packed", "used", "batched", "mixed"])
    int_type = rng.choice([torch.int32, torch.int64])
    problem = {
        "causal": rng.random() < 0.4,
        "window_size": rng.choice([(-1, -1), (-1, -1), (10, 3), (0, 0), (-1, 5), (30, -1)]),
        "softcap": rng.choice([0.0, 0.0, 0.0, 5.0]),
        "softmax_scale": rng.choice([None, None, 0.3]),
    }

    def side(name, batched):
        if batched:
            rows = rng.choice([1, 20, 65])
            shape, sizes = (batch, rows), [rows] * batch
        else:
            sizes = lengths(rng, batch, small)
            shape = (sum(sizes) + rng.choice([0, 0, 3]),)
            problem["cu_" + name] = cumulative(sizes, device, int_type)
        if kind == "used" or (batched and rng.random() < 0.5):
            problem["used_" + name] = torch.tensor([rng.randrange(n + 1) for n in sizes], dtype=int_type, device=device)
        return shape

    shape_q, shape_k = side("q", kind == "batched"), side("k", kind in ("batched", "mixed"))
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape, as_type=dtype):
        return torch.randn(shape, generator=generator).to(device, as_type)

    q, k, v = normal(*shape_q, heads_q, dim), normal(*shape_k, heads_k, dim), normal(*shape_k, heads_k, dim_v)
    dout = normal(*shape_q, heads_q, dim_v)
    dlse = normal(*(shape_q[:-1]), heads_q, shape_q[-1], as_type=torch.float32) if rng.random() < 0.4 else None
    return problem, (q, k, v, dout, dlse)


def call_arguments(problem):
    """The same arguments in varflash's spelling."""
    names = {"cu_q": "cu_seqlens_q", "cu_k": "cu_seqlens_k", "used_q": "seqused_q", "used_k": "seqused_k"}
    return {names.get(name, name): value for name, value in problem.items()}
