"""The package as others get it: a wheel is built, installed into an empty environment, and used there."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy
import pytest
import torch

ROOT = Path(__file__).parent.parent
# The new environment has the wheel alone. Torch and numpy are lent to it, without their neighbours.
USE = """
import sys
sys.path.extend({lent})

class Only:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy}:
            raise ImportError(f"{{name}} is not installed here")

sys.meta_path.insert(0, Only())
import torch
import longtail as lt
assert lt.__file__.startswith(sys.prefix), lt.__file__
counts = lt.counts.exponential(3, 50, 10)
target = torch.arange(6) % 3
for name in "CrossEntropy Focal CosFace ArcFace".split():
    assert getattr(lt.losses, name)()(torch.zeros(6, 3), target).isfinite(), name
for name in "ClassBalanced LDAM LogitAdjusted BalancedSoftmax LabelAwareSmoothing GCL".split():
    assert getattr(lt.losses, name)(counts)(torch.zeros(6, 3), target).isfinite(), name
head = lt.heads.Cosine(4, 3)
lt.losses.GCL(counts, form="angular")(head(torch.ones(6, 4)), target).backward()
assert head.weight.grad.isfinite().all()
assert len(list(lt.data.sampling.Sampler(target, "class_balanced"))) == 6
print(lt.__version__)
"""
HEAVY = "pydantic matplotlib typer rich safetensors jinja2 PIL pyarrow sklearn scipy timm".split()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    source = out / "source"  # setuptools leaves build/ and egg-info beside what it builds
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    for path in (ROOT / "src" / "longtail").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copy = source / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = out.glob("longtail-*-py3-none-any.whl")
    return made


def test_the_wheel_holds_the_package_its_data_and_its_licence(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    package = (ROOT / "src" / "longtail").rglob("*")
    expected = {
        path.relative_to(ROOT / "src").as_posix()
        for path in package
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert expected - inside == set()
    assert {name.partition("/")[0] for name in inside - expected} == {
        f"{wheel.name.removesuffix('-py3-none-any.whl')}.dist-info"
    }
    assert any(name.endswith("licenses/LICENSE") for name in inside)


@pytest.mark.slow
def test_the_losses_work_where_only_the_wheel_is_installed(wheel, tmp_path):
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    bin_ = tmp_path / "env" / ("Scripts" if sys.platform == "win32" else "bin")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(bin_ / "python"),
        "install",
        "--no-deps",
        "--no-index",
    ]
    done = subprocess.run([*pip, "-q", str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lent = sorted({str(Path(module.__file__).parents[1]) for module in (torch, numpy)})
    use = [str(bin_ / "python"), "-I", "-c", USE.format(lent=lent, heavy=set(HEAVY))]
    done = subprocess.run(use, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == wheel.name.split("-")[1]
    assert (bin_ / "longtail").exists()  # the command
