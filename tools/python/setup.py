"""Builds the wheel: the Python files, and libvarflash.so made by the Makefile two folders up, with what it needs that a system may lack.

The library has no Python in it, so that one wheel serves every Python and every torch; only the platform counts.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parents[2]


def version():
    header = (ROOT / "runtime/include/varflash/varflash.h").read_text()
    return ".".join(re.search(rf"#define VF_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        folder = Path(self.build_lib).resolve() / "varflash" / "lib"
        folder.mkdir(parents=True, exist_ok=True)
        # A make that runs this passes its flags on in the environment; the job server among them is closed by now.
        environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        subprocess.run(["make", "-C", str(ROOT), "python-library", f"PYTHON_LIBRARY={folder}"], check=True, env=environment)


class Platform(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


# Beside what make builds: the checkout stays clean, and a file that is gone is not found again in the next wheel.
scratch = ROOT / "build" / "python-build"
shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)

setup(
    version=version(),
    distclass=Platform,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": AnyPython},
    options={"build": {"build_base": str(scratch)}, "egg_info": {"egg_base": str(scratch)}},
)
