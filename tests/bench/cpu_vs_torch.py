#!/usr/bin/env python3
"""Times the CPU backend against PyTorch's scaled_dot_product_attention, float32, on the same cores in the same run.

    python3 tests/bench/cpu_vs_torch.py [--library build/libvarflash.so] [--threads 2] [--repeat 7] [--quick]

Both compute the same tensors, [batch, seqlen, heads, dim] in memory, in turns; printed are the medians. Backward means forward and
backward: PyTorch's autograd, and vf_forward followed by vf_backward. FLOPs are those of the visible part: 4 products of s x s x d a
head forward, 14 with the backward, half of it under a causal mask. Needs torch; nothing else of the project does.
"""
import argparse
import ctypes as c
import statistics
import time

import torch

FLOAT32, CPU, CAUSAL = 3, 2, 1


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int), ("ndim", c.c_int), ("shape", c.c_int64 * 4), ("stride", c.c_int64 * 4)]


class Problem(c.Structure):
    _fields_ = [("mask", c.c_int), ("window_left", c.c_int64), ("window_right", c.c_int64), ("softmax_scale", c.c_double),
                ("softcap", c.c_double), ("deterministic", c.c_int), ("fill", c.c_int),
                ("cu_seqlens_q", Tensor), ("cu_seqlens_k", Tensor), ("seqused_q", Tensor), ("seqused_k", Tensor),
                ("max_seqlen_q", c.c_int64), ("max_seqlen_k", c.c_int64), ("workspace", c.c_void_p), ("workspace_size", c.c_size_t),
                ("stream", c.c_void_p), ("device", c.c_int), ("check", c.c_int), ("flags", c.c_uint32)]


class Forward(c.Structure):
    _fields_ = [("struct_size", c.c_size_t)] + [(name, Tensor) for name in "q k v o lse".split()] + [("problem", Problem)]


class Backward(c.Structure):
    _fields_ = ([("struct_size", c.c_size_t)] + [(name, Tensor) for name in "q k v o lse dout dlse dq dk dv".split()] +
                [("problem", Problem)])


class Options(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("backend", c.c_int), ("log", c.c_void_p), ("log_user", c.c_void_p),
                ("log_level", c.c_int), ("cpu_threads", c.c_int), ("cache_dir", c.c_char_p), ("config", c.c_char_p),
                ("bundles", c.c_void_p), ("bundle_count", c.c_size_t)]


def view(tensor):
    result = Tensor(tensor.data_ptr(), FLOAT32, tensor.dim())
    result.shape[:tensor.dim()], result.stride[:tensor.dim()] = tensor.shape, tensor.stride()
    return result


class Library:
    def __init__(self, path, threads):
        self.lib = c.CDLL(path)
        self.lib.vf_last_error.restype = c.c_char_p
        self.context = c.c_void_p()
        self.check(self.lib.vf_open(c.byref(Options(backend=CPU, cpu_threads=threads)), c.byref(self.context)))

    def check(self, status):
        if status:
            raise SystemExit(self.lib.vf_last_error().decode())

    def forward(self, t, problem):
        args = Forward(0, *[view(t[name]) for name in "q k v o lse".split()], problem)
        return lambda: self.check(self.lib.vf_forward(self.context, c.byref(args)))

    def both(self, t, problem):
        forward = self.forward(t, problem)
        tensors = [view(t[name]) if name in t else Tensor() for name in "q k v o lse dout dlse dq dk dv".split()]
        args = Backward(0, *tensors, problem)

        def run():
            forward()
            self.check(self.lib.vf_backward(self.context, c.byref(args)))
        return run


def seconds(calls, repeat):
    """The median time of each call, taken in turns, with a rest before each: OpenMP's threads go on spinning for a while."""
    times = [[] for _ in calls]
    for turn in range(repeat + 1):
        for call, list_ in zip(calls, times):
            time.sleep(0.03)
            start = time.perf_counter()
            call()
            if turn:
                list_.append(time.perf_counter() - start)
    return [statistics.median(list_) for list_ in times]


def measure(library, batch, s, heads, dim, causal, repeat):
    t = {name: torch.randn(batch, s, heads, dim) for name in "q k v dout".split()}
    t.update({name: torch.empty(batch, s, heads, dim) for name in "o dq dk dv".split()}, lse=torch.empty(batch, heads, s))
    problem = Problem(mask=CAUSAL if causal else 0)
    q, k, v = (t[name].transpose(1, 2).detach().requires_grad_() for name in "qkv")
    dout = t["dout"].transpose(1, 2)
    attention = torch.nn.functional.scaled_dot_product_attention

    def torch_forward():
        with torch.no_grad():
            return attention(q, k, v, is_causal=causal)

    def torch_both():
        return torch.autograd.grad(attention(q, k, v, is_causal=causal), (q, k, v), dout)

    forward, both = library.forward(t, problem), library.both(t, problem)
    both()
    for ours, theirs in zip((t["dq"], t["dk"], t["dv"], t["o"]), (*torch_both(), torch_forward())):
        torch.testing.assert_close(ours, theirs.transpose(1, 2), rtol=1e-3, atol=1e-4)
    forward_flops = 4 * batch * heads * s * s * dim * (0.5 if causal else 1)
    for name, calls, flops in (("forward", (forward, torch_forward), forward_flops), ("both", (both, torch_both), 3.5 * forward_flops)):
        ours, theirs = seconds(calls, repeat)
        print(f"{name:8} {'causal' if causal else 'full':6} b{batch:<3} s{s:<5} h{heads:<3} d{dim:<4} {ours * 1e3:9.2f} ms "
              f"{flops / ours * 1e-9:7.1f} GF/s   torch {theirs * 1e3:9.2f} ms {flops / theirs * 1e-9:7.1f} GF/s   x{theirs / ours:.2f}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default="build/libvarflash.so")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="a few shapes only")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    library = Library(options.library, options.threads)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {options.threads} threads")
    for s in (1024,) if options.quick else (512, 1024, 2048, 4096):
        for dim in (64, 128):
            for causal in (False, True):
                measure(library, max(1, 1024 // s), s, 8 * 64 // dim, dim, causal, options.repeat)


if __name__ == "__main__":
    main()
