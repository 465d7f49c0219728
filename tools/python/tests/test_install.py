"""The wheel: built as pip does, small, and of use in a process that knows no checkout, no library of the system and no GPU."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parents[1]
LIMIT = 3_000_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if not (ROOT / os.environ.get("BUILD", "build") / "runtime").exists():
        pytest.skip("needs a checkout that the library was built in")
    if not importlib.util.find_spec("setuptools") or not (
        importlib.util.find_spec("wheel") or importlib.util.find_spec("setuptools.command.bdist_wheel")
    ):
        pytest.skip("without the network, needs setuptools, and wheel before its version 70.1")
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-build-isolation", "--wheel-dir", folder, PACKAGE)
    (found,) = folder.glob("*.whl")
    return found


def pip(command, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--no-deps", "--disable-pip-version-check", *arguments],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_wheel_is_small_and_whole(wheel):
    assert wheel.stat().st_size <= LIMIT
    assert wheel.name.split("-")[2:4] == ["py3", "none"]  # any Python: there is none in the library
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"varflash/lib/libvarflash.so", "varflash/lib/suites.txt"} <= names
    here = {path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "varflash").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == here


def test_installed_package_is_enough(wheel, tmp_path):
    pip("install", "--target", tmp_path / "site", wheel)
    code = """if True:
        import torch, varflash
        assert not torch.cuda.is_available()
        q = torch.randn(5, 2, 16, requires_grad=True)
        cu = torch.tensor([0, 2, 5], dtype=torch.int32)
        varflash.flash_attn_varlen_func(q, q, q, cu, cu, causal=True).sum().backward()
        assert q.grad.isfinite().all()
        from varflash.compare.problem import suite
        assert suite("bench")
        print(varflash.__file__, varflash._library.load()._name, varflash.__version__)
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VARFLASH_", "PYTHONPATH"))}
    environment.update(PYTHONPATH=str(tmp_path / "site"), CUDA_VISIBLE_DEVICES="")
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    file, library, version = done.stdout.split()
    assert all(Path(path).is_relative_to(tmp_path / "site") for path in (file, library))
    assert f"-{version}-" in wheel.name
