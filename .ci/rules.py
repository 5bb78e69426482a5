"""The house rules that no linter knows: one line per finding, exit status 1 when there is any.

    python .ci/rules.py            # src/longtail
    python .ci/rules.py FOLDER     # another package, for the tests of this script

A file may break a rule when ALLOWED says why.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# (file, rule): reason.
ALLOWED = {
    ("data/unpickle.py", "pickle"): "the one restricted unpickler, for the python layout of CIFAR",
    (
        "backbones/weights.py",
        "torch-load",
    ): "the one reader of .pth weights; weights_only=True is still demanded",
    ("run/fsio.py", "writing"): "the one module that writes",
    (
        "data/download.py",
        "writing",
    ): "below run/ in the layers; appends to a partial download it holds locked",
    ("engine/distributed.py", "distributed"): "the one module that knows of other processes",
    ("recipe.py", "file-length"): "every spec in one file: it is read as the reference of recipe.json",
}

LONGEST = 250
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "base", "core"}
IMPORTS = {
    "torchvision": ("torchvision", "its wheel cannot be imported beside every build of torch"),
    "pickle": ("pickle", "runs code when read; tensors go to safetensors, the rest to JSON"),
    "dill": ("pickle", "is pickle"),
    "cloudpickle": ("pickle", "is pickle"),
    "joblib": ("pickle", "is pickle"),
    "shelve": ("pickle", "is pickle"),
    "random": ("random", "a global stream; derive a generator from longtail.keys.Key"),
    "torch.distributed": ("distributed", "belongs to engine/distributed.py"),
}
CALLS = {
    "eval": ("eval", "runs text as code"),
    "exec": ("eval", "runs text as code"),
    "os.system": ("shell", "runs a shell"),
    "os.popen": ("shell", "runs a shell"),
    "torch.save": ("pickle", "writes a pickle; use safetensors through run/fsio.py"),
    "torch.manual_seed": ("torch-random", "moves the global stream; derive a generator from Key"),
    "torch.seed": ("torch-random", "moves the global stream"),
    "torch.cuda.manual_seed": ("torch-random", "moves the global stream"),
    "torch.cuda.manual_seed_all": ("torch-random", "moves the global stream"),
    "torch.random.manual_seed": ("torch-random", "moves the global stream"),
}
METHODS = {
    "extractall": ("extractall", "writes wherever the archive says; see data/archive.py"),
    "unpack_archive": ("extractall", "writes wherever the archive says; see data/archive.py"),
    "write_text": ("writing", "go through run/fsio.py"),
    "write_bytes": ("writing", "go through run/fsio.py"),
}
DRAWS = {
    f"torch.{name}" for name in "rand randn randint randperm multinomial bernoulli normal poisson".split()
}
DRAWS |= {f"torch.{name}_like" for name in ("rand", "randn", "randint")}
DRAWING_METHODS = set(
    "uniform_ normal_ bernoulli_ random_ exponential_ geometric_ cauchy_ log_normal_ kaiming_normal_ "
    "kaiming_uniform_ xavier_normal_ xavier_uniform_ trunc_normal_ orthogonal_ sparse_".split()
)
PRIVATE_STREAMS = {
    "Generator",
    "BitGenerator",
    "Philox",
    "PCG64",
    "MT19937",
    "RandomState",
    "SeedSequence",
    "default_rng",
}

Found = tuple[int, str, str]  # line, rule, what


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent / "src" / "longtail"
    findings = list(check(root))
    print(*findings, sep="\n", end="\n" if findings else "")
    return 1 if findings else 0


def check(root: Path) -> Iterator[str]:
    """One line for each breach below `root`."""
    for path in sorted(root.rglob("*.py")):
        where = path.relative_to(root).as_posix()
        for line, rule, what in findings_in(path.read_text(encoding="utf-8"), where):
            if (where, rule) not in ALLOWED:
                yield f"{path}:{line}: {rule}: {what}"


def findings_in(source: str, where: str) -> Iterator[Found]:
    """Every breach of one file, allowed ones included."""
    for part in Path(where).with_suffix("").parts:
        if part in VAGUE_NAMES:
            yield 1, "file-name", f"{part!r} says nothing; name the file after its idea"
    length = source.count("\n")
    if length > LONGEST:
        yield length, "file-length", f"{length} lines; the ceiling is {LONGEST}"
    tree = ast.parse(source, filename=where)
    names = _aliases(tree)
    for node in ast.walk(tree):
        for rule, what in _node_findings(node, names):
            yield getattr(node, "lineno", 1), rule, what


def _node_findings(node: ast.AST, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Import():
            for alias in node.names:
                yield from _import_findings(alias.name)
        case ast.ImportFrom(module=str(module), level=0):
            for alias in node.names:
                yield from _import_findings(f"{module}.{alias.name}")
        case ast.ExceptHandler():
            yield from _handler_findings(node)
        case ast.Attribute():
            yield from _attribute_findings(_dotted(node, names))
        case ast.Call():
            yield from _call_findings(node, _dotted(node.func, names), names)
        case _:
            return


def _import_findings(module: str) -> Iterator[tuple[str, str]]:
    for name, (rule, reason) in IMPORTS.items():
        if module == name or module.startswith(name + "."):
            yield rule, f"import of {name}: {reason}"
    if module.startswith("numpy.random."):
        yield from _attribute_findings(module)


def _handler_findings(node: ast.ExceptHandler) -> Iterator[tuple[str, str]]:
    if node.type is None:
        yield "bare-except", "except without a kind also catches interrupts; name what is expected"
    if all(isinstance(line, ast.Pass) or _is_constant(line) for line in node.body):
        yield "silent-except", "an error is swallowed; handle it, or use contextlib.suppress and say why"


def _is_constant(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def _attribute_findings(name: str) -> Iterator[tuple[str, str]]:
    if name.startswith("torch.distributed."):
        yield "distributed", "torch.distributed belongs to engine/distributed.py"
    if name.startswith("numpy.random.") and name.split(".")[2] not in PRIVATE_STREAMS:
        yield "numpy-random", f"{name} uses the global stream; derive a generator from longtail.keys.Key"


def _call_findings(node: ast.Call, name: str, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    method = node.func.attr if isinstance(node.func, ast.Attribute) else name.rpartition(".")[2]
    if name in CALLS:
        yield CALLS[name][0], f"{name}: {CALLS[name][1]}"
    if method in METHODS:
        yield METHODS[method][0], f"{method}: {METHODS[method][1]}"
    if (name in DRAWS or method in DRAWING_METHODS) and "generator" not in given:
        yield "torch-random", f"{method} without generator= reads the global stream"
    if name.startswith("numpy.random.") and not node.args and not node.keywords:
        yield "numpy-random", f"{name}() without a seed differs from run to run"
    if name == "torch.load":
        yield from _load_findings(given.get("weights_only"))
    if "shell" in given and not _is(given["shell"], False):
        yield "shell", "shell=True hands text to a shell; pass a list"
    if "allow_pickle" in given and not _is(given["allow_pickle"], False):
        yield "pickle", "allow_pickle runs code when read"
    if method in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
        yield from _import_findings(str(node.args[0].value))
    if method in ("open", "fdopen"):
        of_a_module = name == "open" or name.rpartition(".")[0] in names.values()
        yield from _open_findings(node, name if of_a_module else "")


def _load_findings(weights_only: ast.expr | None) -> Iterator[tuple[str, str]]:
    yield "torch-load", "torch.load belongs to backbones/weights.py"
    if not _is(weights_only, True):
        yield "unsafe-load", "torch.load without weights_only=True runs code"


def _open_findings(node: ast.Call, name: str) -> Iterator[tuple[str, str]]:
    """The mode is the first argument of a path's open(), the second of the builtin's and of a module's."""
    place = 1 if name else 0
    modes = [keyword.value for keyword in node.keywords if keyword.arg == "mode"] or node.args[
        place : place + 1
    ]
    for mode in modes:
        if isinstance(mode, ast.Constant) and isinstance(mode.value, str):
            if set(re.split("[:|]", mode.value)[0]) & set("wax+"):
                yield "writing", f"a file opened with mode {mode.value!r}; go through run/fsio.py"


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _aliases(tree: ast.AST) -> dict[str, str]:
    """What each imported name stands for: np -> numpy, rand -> torch.rand."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    """`np.random.rand` as numpy.random.rand; empty for anything that is not a chain of names."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
