"""Every test that takes `device` runs on the CPU, and on the GPU where there is one."""

import pytest
import torch

CUDA = torch.cuda.is_available()
if not CUDA:  # Tensors are tiny: a second thread only waits, and takes a core from whoever else is at work.
    torch.set_num_threads(1)


def pytest_configure(config):
    config.addinivalue_line("markers", "long: more than a few seconds; runs with --long")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="also the tests that take minutes")
    parser.addoption("--problems", type=int, default=500, help="problems of the sweep (500)")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if "long" in item.keywords and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="long: runs with --long"))
        if "cuda" in item.path.stem and not CUDA:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not CUDA, reason="no CUDA device"))])
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
