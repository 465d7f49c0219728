"""A seeded sweep against float64: every feature, forms, types, lengths, GQA, gradients of o and lse."""

import functools

import problems
import pytest
import reference
import torch

import varflash

CUDA = torch.cuda.is_available()
CHUNKS = 20


def one(seed, device):
    problem, (q, k, v, dout, dlse) = problems.draw(seed, device)
    call = functools.partial(varflash.flash_attn_varlen_func, return_lse=True, **problems.call_arguments(problem))
    reference.check(call, q, k, v, dout, dlse, **problem)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_against_float64(chunk, request):
    count = request.config.getoption("--problems")
    for seed in range(chunk, count, CHUNKS):
        try:
            one(seed, "cuda" if CUDA else "cpu")
        except Exception as error:
            raise AssertionError(f"problem {seed}: {error}") from error
