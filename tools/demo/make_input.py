"""Makes tools/demo/packed.safetensors, the input of `make demo`, with the safetensors package: a file that varflash did not write.

    python3 tools/demo/make_input.py        needs numpy and safetensors; the result is in the repository

Four sequences, one without queries and one with a single key; the last six rows of the queries belong to no sequence and hold NaN.
"""
import numpy
from safetensors.numpy import save_file

random = numpy.random.default_rng(7)
cu_q = numpy.array([0, 31, 31, 32, 90], dtype=numpy.int32)
cu_k = numpy.array([0, 40, 57, 58, 122], dtype=numpy.int32)
rows_q, rows_k, heads_q, heads_k, head_dim = 96, 122, 4, 2, 72


def normal(rows, heads):
    return random.standard_normal((rows, heads, head_dim)).astype(numpy.float16)


tensors = {"q": normal(rows_q, heads_q), "k": normal(rows_k, heads_k), "v": normal(rows_k, heads_k), "dout": normal(rows_q, heads_q)}
for name in ("q", "dout"):
    tensors[name][cu_q[-1]:] = numpy.nan
save_file({**tensors, "cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k}, "tools/demo/packed.safetensors")
