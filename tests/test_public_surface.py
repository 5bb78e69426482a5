"""What `import longtail` promises: the names, and that each loads no more than it needs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import longtail

ROOT = Path(__file__).parent.parent
HEAVY = "pydantic matplotlib typer rich safetensors jinja2 PIL pyarrow sklearn scipy timm torchvision".split()
PARTS = ["counts", "clouds", "losses", "heads", "metrics", "data.sampling", "keys", "errors"]

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy}:
            raise ImportError(f"{{name}} is blocked in this test")

sys.meta_path.insert(0, Blocked())
"""


def python(code):
    """Run `code` in a fresh interpreter; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(statement):
    code = f"import sys; before = set(sys.modules); {statement}; import json; "
    return set(json.loads(python(code + "print(json.dumps(sorted(set(sys.modules) - before)))")))


def test_importing_longtail_loads_nothing_but_itself():
    loaded = loaded_by("import longtail")
    assert {name for name in loaded if name.startswith("longtail")} == {"longtail"}
    assert {name.partition(".")[0] for name in loaded} <= {"longtail", *sys.stdlib_module_names}


def test_longtail_can_be_imported_where_torch_is_not():
    blocked = BLOCK.format(heavy={"torch", "numpy", *HEAVY})
    code = "import longtail\nprint(longtail.__version__, dir(longtail)[:2])"
    assert python(blocked + code).endswith("['__version__', 'backbones']\n")


def test_importing_longtail_takes_no_time():
    code = "import time; begin = time.process_time(); import longtail; print(time.process_time() - begin)"
    assert min(float(python(code)) for _ in range(3)) < 0.1


def test_the_parts_load_torch_and_nothing_heavier():
    assert not loaded_by("import " + ", ".join(f"longtail.{part}" for part in PARTS)) & set(HEAVY)


def test_what_needs_no_torch_does_not_load_it():
    assert "torch" not in loaded_by("import longtail.keys, longtail.errors, longtail.recipe, longtail.data")


def test_the_parts_work_where_nothing_but_torch_and_numpy_is_installed():
    code = """
import torch
import longtail as lt

counts = lt.counts.exponential(3, 50, 10)
head = lt.heads.Cosine(4, 3)
loss = lt.losses.GCL(counts)
targets = torch.tensor([0, 1, 2, 0])
scores = head(torch.ones(4, 4))
loss(scores, targets, generator=torch.Generator().manual_seed(0)).backward()
meter = lt.metrics.Meter(counts)
meter.update(loss.logits(scores), targets)
assert meter.compute()["totals"] == [2, 1, 1]
assert lt.clouds.sizes(counts)[0] == 0
sampler = lt.data.sampling.Sampler(targets, "class_balanced")
assert len(list(torch.utils.data.DataLoader(targets, batch_size=2, sampler=sampler))) == 2
print("done")
"""
    assert python(BLOCK.format(heavy=set(HEAVY)) + code) == "done\n"


def test_the_block_of_these_tests_blocks():
    code = (
        BLOCK.format(heavy=set(HEAVY))
        + "try:\n    import pydantic\nexcept ImportError as error:\n    print(error)"
    )
    assert "pydantic is blocked" in python(code)


def test_every_public_name_resolves():
    for name in longtail.__all__:
        assert getattr(longtail, name) is not None, name


def test_dir_shows_the_public_names():
    assert dir(longtail) == sorted(longtail.__all__)
    assert dir(longtail.data) == sorted(longtail.data.__all__)


@pytest.mark.parametrize("module", [longtail, longtail.data])
def test_a_name_that_does_not_exist_is_an_attribute_error(module):
    assert not hasattr(module, "loses")
    with pytest.raises(AttributeError, match="no attribute 'loses'"):
        module.loses  # noqa: B018


def test_every_data_module_resolves():
    for name in longtail.data.__all__:
        assert getattr(longtail.data, name).__name__ == f"longtail.data.{name}"


@pytest.mark.parametrize("module", [longtail, longtail.data])
def test_type_checkers_see_the_names_that_exist(module):
    """PEP 562 hides names from type checkers; the TYPE_CHECKING block must list all of them."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    (block,) = [n for n in tree.body if isinstance(n, ast.If) and isinstance(n.test, ast.Name)]
    typed = {alias.asname for n in block.body if isinstance(n, ast.ImportFrom) for alias in n.names}
    typed |= {n.target.id for n in block.body if isinstance(n, ast.AnnAssign)}
    assert typed == set(module.__all__)


def test_train_load_and_predict_come_from_the_engine_on_first_use():
    code = """
import sys, types
for name, verb in [("fit", "train"), ("load", "load"), ("predict", "predict")]:
    module = types.ModuleType("longtail.engine." + name)
    setattr(module, verb, verb)
    sys.modules.setdefault("longtail.engine", types.ModuleType("longtail.engine"))
    sys.modules["longtail.engine." + name] = module
import longtail as lt
print(lt.train, lt.load, lt.predict, "torch" in sys.modules)
"""
    assert python(code) == "train load predict False\n"


def test_train_load_and_predict_are_functions_of_the_engine():
    from longtail.engine import fit, load, predict

    assert longtail.train is fit.train
    assert longtail.load is load.load
    assert longtail.predict is predict.predict


def test_the_version_is_said_once():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert longtail.__version__ == version
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_loop_in_the_readme_runs_on_torch_alone():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (loop,) = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    assert "'few'" in python(BLOCK.format(heavy={"pydantic", "matplotlib"}) + loop)


def test_the_readme_names_every_loss_head_and_rule():
    from typing import get_args

    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    rules = get_args(longtail.data.sampling.Rule)
    losses = [name for name in longtail.losses.__all__ if name not in ("Mixed", "Target")]
    assert [name for name in (*losses, *longtail.heads.__all__, *rules) if name not in text] == []


def test_the_documents_keep_their_lengths():
    lengths = {
        name: (ROOT / name).read_text(encoding="utf-8").count("\n")
        for name in ("README.md", "CONTRIBUTING.md")
    }
    assert lengths["README.md"] < 130 and lengths["CONTRIBUTING.md"] < 60
