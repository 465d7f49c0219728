"""A problem to compare: the flags of the `varflash` command, its tensors, and how much work it is.

Flags that only a test needs (strides, poison, broken lengths) are not known here. Suites are those of the command, in suites.txt beside
the library.
"""

import argparse
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import torch

from .. import _library

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
INFINITE = 1 << 62


def _lengths(text):
    """34x8192,5: repeated, separated by commas; 'none' is an empty batch."""
    out = []
    for part in text.split(",") if text != "none" else []:
        length, _, times = part.partition("x")
        if not length.isdecimal() or not (times or "1").isdecimal():
            raise argparse.ArgumentTypeError(f"'{part}' is no length such as 512 or 34x8192")
        out += [int(length)] * int(times or 1)
    return out


def _window(text):
    edges = text.split(",")
    if len(edges) != 2 or not all(edge == "inf" or edge.isdecimal() for edge in edges):
        raise argparse.ArgumentTypeError(f"'{text}' is not L,R, each a number or 'inf'")
    left, right = (INFINITE if edge == "inf" else int(edge) for edge in edges)
    return left, right


def add_flags(parser):
    group = parser.add_argument_group("the problem, as for the varflash command")
    group.add_argument("--name", default="", metavar="TEXT", help="a label")
    group.add_argument("--seqlens-q", type=_lengths, metavar="N,N,...", help="lengths of the sequences of q; 34x8192 repeats")
    group.add_argument("--seqlens-k", type=_lengths, metavar="N,N,...", help="lengths of k and v (those of q)")
    group.add_argument("--heads-q", type=int, default=1, metavar="N", help="query heads (1)")
    group.add_argument("--heads-k", type=int, metavar="N", help="key heads (as many)")
    group.add_argument("--head-dim", type=int, default=64, metavar="N", help="of q and k (64)")
    group.add_argument("--head-dim-v", type=int, metavar="N", help="of v and o (head-dim)")
    group.add_argument("--dtype", choices=DTYPES, default="bf16", help="(bf16)")
    group.add_argument("--causal", action="store_true", help="bottom-right aligned causal mask")
    group.add_argument("--window", type=_window, metavar="L,R", help="keys from i+d-L to i+d+R; 'inf': no edge")
    group.add_argument("--scale", type=float, metavar="X", help="softmax scale (1/sqrt(head-dim))")
    group.add_argument("--softcap", type=float, default=0.0, metavar="X", help="cap * tanh(x / cap) (none)")
    group.add_argument("--deterministic", action="store_true", help="the same bits in every run of the backward")
    group.add_argument("--backward", action="store_true", help="the backward pass too")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of the inputs (0)")


@dataclass
class Problem:
    flags: argparse.Namespace
    name: str = ""
    lengths_q: list = field(default_factory=list)
    lengths_k: list = field(default_factory=list)

    def __post_init__(self):
        flags = self.flags
        self.lengths_q = flags.seqlens_q
        self.lengths_k = flags.seqlens_q if flags.seqlens_k is None else flags.seqlens_k
        if len(self.lengths_q) != len(self.lengths_k):
            raise ValueError(f"seqlens-k: has {len(self.lengths_k)} lengths, seqlens-q {len(self.lengths_q)}")
        flags.heads_k = flags.heads_k or flags.heads_q
        flags.head_dim_v = flags.head_dim_v or flags.head_dim
        self.name = flags.name or f"d{flags.head_dim}-{sum(self.lengths_q)}"
        self.scale = flags.scale or flags.head_dim**-0.5
        left, right = flags.window or (INFINITE, INFINITE)
        right = 0 if flags.causal else right
        # As FlashAttention writes it: -1 is no edge.
        self.window = tuple(-1 if edge == INFINITE else edge for edge in (left, right))
        self.causal = self.window == (-1, 0)

    @property
    def equal_lengths(self):
        return len(set(self.lengths_q)) == 1 and self.lengths_q == self.lengths_k

    def pairs(self):
        """Visible (query, key) pairs of one head."""
        total = 0
        left, right = (INFINITE if edge < 0 else edge for edge in self.window)
        counted = {}
        for n, m in zip(self.lengths_q, self.lengths_k):
            if (n, m) not in counted:
                rows = torch.arange(n, dtype=torch.float64) + (m - n)
                first, last = (rows - left).clamp(min=0), (rows + right).clamp(max=m - 1)
                counted[n, m] = int((last - first + 1).clamp(min=0).sum())
            total += counted[n, m]
        return total

    def flops(self, backward):
        flags = self.flags
        columns = 3 * flags.head_dim + 2 * flags.head_dim_v if backward else flags.head_dim + flags.head_dim_v
        return 2 * self.pairs() * flags.heads_q * columns

    def tensors(self, device):
        """q, k, v, dout, packed."""
        flags, generator = self.flags, torch.Generator(device).manual_seed(self.flags.seed)

        def normal(rows, heads, dim):
            return torch.randn(rows, heads, dim, generator=generator, device=device, dtype=torch.float32).to(DTYPES[flags.dtype])

        rows_q, rows_k = sum(self.lengths_q), sum(self.lengths_k)
        q, k = normal(rows_q, flags.heads_q, flags.head_dim), normal(rows_k, flags.heads_k, flags.head_dim)
        return q, k, normal(rows_k, flags.heads_k, flags.head_dim_v), normal(rows_q, flags.heads_q, flags.head_dim_v)

    def cumulative(self, device):
        """cu_seqlens of queries and of keys."""

        def make(lengths):
            return torch.nn.functional.pad(torch.tensor(lengths, dtype=torch.int64).cumsum(0), (1, 0)).to(device, torch.int32)

        return make(self.lengths_q), make(self.lengths_k)


def suite(name):
    """The problems of a suite that can be compared."""
    path = Path(_library.load()._name).resolve().with_name("suites.txt")
    if not path.exists():
        raise ValueError(f"{path} is not there: make python-library writes it beside the library")
    parser = argparse.ArgumentParser(prog="suite", exit_on_error=False)
    add_flags(parser)
    lines = [line.rstrip("\n").split("\t", 1) for line in path.open()]
    if name not in {suite_name for suite_name, _ in lines}:
        raise ValueError(f"suite: '{name}' is none of {', '.join(sorted({suite_name for suite_name, _ in lines}))}")
    return [Problem(parser.parse_args(shlex.split(flags))) for suite_name, flags in lines if suite_name == name]
