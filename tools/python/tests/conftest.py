"""Every test that takes `device` runs on the CPU, and on the GPU where there is one."""

import os

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


def device_is_lost():
    """After a fault of a kernel nothing works on the device in this process."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def pytest_runtest_teardown(item):
    if not device_is_lost():
        return
    if "PYTEST_XDIST_WORKER" in os.environ:  # another worker takes its place, and the next test starts with a device
        os._exit(1)
    pytest.exit(f"{item.nodeid}: a fault of a kernel took the device from this process", returncode=1)
