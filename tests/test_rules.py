"""The gate of house rules, fed with code it must refuse and code it must let pass."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "rules.py"


def script():
    spec = importlib.util.spec_from_file_location("house_rules", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RULES = script()


def rules_broken(source, where="some/idea.py"):
    return {rule for _, rule, _ in RULES.findings_in(source, where)}


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        ("torchvision", "import torchvision"),
        ("torchvision", "from torchvision.transforms import functional"),
        ("torchvision", "import importlib\nimportlib.import_module('torchvision.ops')"),
        ("pickle", "import pickle"),
        ("pickle", "from pickle import loads"),
        ("pickle", "import torch\ntorch.save({}, 'x')"),
        ("pickle", "import numpy as np\nnp.load('x', allow_pickle=True)"),
        ("torch-load", "import torch\ntorch.load('x', weights_only=True)"),
        ("unsafe-load", "import torch\ntorch.load('x')"),
        ("unsafe-load", "from torch import load\nload('x', weights_only=False)"),
        ("extractall", "import tarfile\ntarfile.open('x').extractall('y')"),
        ("extractall", "import shutil\nshutil.unpack_archive('x')"),
        ("eval", "eval('1')"),
        ("eval", "exec('1')"),
        ("shell", "import subprocess\nsubprocess.run('ls', shell=True)"),
        ("shell", "import subprocess\nsubprocess.run('ls', shell=quick)"),
        ("shell", "import os\nos.system('ls')"),
        ("shell", "from os import system\nsystem('ls')"),
        ("numpy-random", "import numpy as np\nnp.random.seed(0)"),
        ("numpy-random", "import numpy\nnumpy.random.shuffle(x)"),
        ("numpy-random", "from numpy import random\nrandom.rand(3)"),
        ("numpy-random", "from numpy.random import rand"),
        ("numpy-random", "import numpy as np\nnp.random.default_rng()"),
        ("random", "import random"),
        ("random", "from random import shuffle"),
        ("torch-random", "import torch\ntorch.manual_seed(0)"),
        ("torch-random", "import torch\ntorch.cuda.manual_seed_all(0)"),
        ("torch-random", "import torch\ntorch.rand(3)"),
        ("torch-random", "import torch\ntorch.randn_like(x)"),
        ("torch-random", "from torch import randperm\nrandperm(3)"),
        ("torch-random", "import torch as t\nt.multinomial(w, 3)"),
        ("torch-random", "x.normal_(0, 1)"),
        ("torch-random", "from torch import nn\nnn.init.kaiming_normal_(w)"),
        ("bare-except", "try:\n    f()\nexcept:\n    raise"),
        ("silent-except", "try:\n    f()\nexcept OSError:\n    pass"),
        ("silent-except", "try:\n    f()\nexcept OSError:\n    ..."),
        ("silent-except", "try:\n    f()\nexcept OSError:\n    'never mind'"),
        ("writing", "open('x', 'w')"),
        ("writing", "open('x', mode='ab')"),
        ("writing", "from pathlib import Path\nPath('x').open('r+')"),
        ("writing", "import os\nos.fdopen(3, 'wb')"),
        ("writing", "import tarfile\ntarfile.open('x', 'w:gz')"),
        ("writing", "from pathlib import Path\nPath('x').write_text('y')"),
        ("writing", "path.write_bytes(b'')"),
        ("distributed", "import torch.distributed as dist"),
        ("distributed", "from torch import distributed"),
        ("distributed", "from torch.distributed import all_reduce"),
        ("distributed", "import torch\ntorch.distributed.barrier()"),
        ("file-length", "x = 1\n" * 251),
    ],
)
def test_a_breach_is_found(rule, source):
    assert rule in rules_broken(source)


@pytest.mark.parametrize("name", ["utils", "common", "helpers", "misc", "base", "core"])
def test_a_vague_file_or_folder_name_is_found(name):
    assert rules_broken("", f"data/{name}.py") == {"file-name"}
    assert rules_broken("", f"{name}/idea.py") == {"file-name"}


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()",
        "open('x')\nopen('w')\nopen('a.txt', 'rb')\npath.open()\npath.open('rb')",
        "import tarfile\ntarfile.open('x', 'r:gz')",
        "import os\nos.open('x', os.O_RDONLY)",
        "import subprocess\nsubprocess.run(['ls'], shell=False)",
        "import numpy as np\nnp.random.Generator(np.random.Philox(key=3))\nx: np.random.Generator",
        "import numpy as np\nnp.random.default_rng(3).random(4)\nnp.load('x', allow_pickle=False)",
        "import torch\ntorch.rand(3, generator=g)\ntorch.Generator().manual_seed(3)",
        "x.uniform_(0, 1, generator=g)",
        "from torch import nn\nnn.init.zeros_(w)\nnn.init.kaiming_normal_(w, generator=g)",
        "from longtail.data import random\nfrom longtail.engine import distributed",
        "try:\n    f()\nexcept OSError as error:\n    raise ValueError from error",
        "'torchvision, pickle, eval() and open(x, \"w\") in a text'",
        "x = 1\n" * 250,
    ],
)
def test_what_only_looks_like_a_breach_passes(source):
    assert rules_broken(source) == set()


def test_an_allowed_breach_needs_the_file_and_the_rule(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "unpickle.py").write_text("import pickle\n")
    assert list(RULES.check(tmp_path)) == []
    (folder / "unpickle.py").write_text("import pickle, random\n")
    (folder / "folder.py").write_text("import pickle\n")
    found = list(RULES.check(tmp_path))
    assert len(found) == 2
    assert "folder.py:1: pickle" in found[0] and "unpickle.py:1: random" in found[1]


def test_every_allowance_has_a_reason_and_a_file():
    package = SCRIPT.parent.parent / "src" / "longtail"
    assert all(len(reason) > 20 for reason in RULES.ALLOWED.values())
    assert [where for where, _ in RULES.ALLOWED if not (package / where).is_file()] == []


def test_even_the_reader_of_weights_must_not_run_code(tmp_path):
    folder = tmp_path / "backbones"
    folder.mkdir()
    (folder / "weights.py").write_text("import torch\ntorch.load('x', weights_only=False)\n")
    assert [line.split(": ")[1] for line in RULES.check(tmp_path)] == ["unsafe-load"]


def test_the_script_prints_one_line_each_and_exits_with_one(tmp_path):
    (tmp_path / "clean.py").write_text("x = 1\n")
    clean = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=False)
    assert (clean.returncode, clean.stdout) == (0, "")
    (tmp_path / "misc.py").write_text("import random\n")
    broken = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=False)
    assert broken.returncode == 1
    assert len(broken.stdout.splitlines()) == 2 and "misc.py:1: random: " in broken.stdout


def test_the_package_keeps_the_rules():
    assert list(RULES.check(SCRIPT.parent.parent / "src" / "longtail")) == []
