"""The gallery: the command line takes every command, every figure is shown. The code of the README runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from PIL import Image

from longtail.cli.failures import Session
from longtail.cli.main import app
from longtail.recipes import catalogue
from longtail.report.figures import NAMES

ROOT = Path(__file__).parent.parent
GALLERY = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
LINES = [
    line
    for block in re.findall(r"^```\n(.*?)^```$", GALLERY, flags=re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [shlex.split(line)[1:] for line in LINES if line.startswith("longtail ")]
PICTURES = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", GALLERY)


def parsed(arguments: list[str]) -> dict[str, object]:
    """What the command line makes of the words, without doing any of it."""
    group = typer.main.get_command(app)
    context = group.make_context("longtail", arguments[:1], obj=Session(), resilient_parsing=True)
    command = group.get_command(context, arguments[0])  # type: ignore[attr-defined]
    assert command is not None, arguments[0]
    return command.make_context(arguments[0], arguments[1:], parent=context).params


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments[:2]))
def test_every_command_is_taken(arguments: list[str]) -> None:
    found = parsed(arguments)
    if arguments[0] == "figure":
        assert found["name"] in NAMES
    if arguments[0] == "train":
        catalogue.make(str(found["recipe"]), found["settings"] or [])  # type: ignore[arg-type]
    given = re.findall(r"\bresults/[\w-]+", " ".join(arguments))
    assert all((ROOT / path / "recipe.json").is_file() for path in given)


def test_a_wrong_command_would_be_refused() -> None:
    with pytest.raises(Exception, match="(?i)no such option"):
        parsed(["figure", "groups", "--out", "x", "--size", "3"])


def test_the_rest_of_the_lines_are_scripts_of_the_repository() -> None:
    others = [shlex.split(line) for line in LINES if not line.startswith("longtail ")]
    assert all(words[0] == "python" and (ROOT / words[1]).is_file() for words in others)


def test_every_figure_is_drawn_and_shown() -> None:
    assert {arguments[1] for arguments in COMMANDS if arguments[0] == "figure"} == set(NAMES)
    drawn = {Path(str(parsed(a)["out"])).name for a in COMMANDS if a[0] == "figure"}
    assert drawn == {Path(picture).stem for picture in PICTURES if picture.startswith("gallery/")}


def test_the_pictures_are_there_small_and_not_blank() -> None:
    files = [ROOT / "docs" / picture for picture in PICTURES]
    for file in files:
        image = Image.open(file).convert("L")
        low, high = image.getextrema()
        assert image.width >= 300 and high - low > 100, file.name
    assert sum(file.stat().st_size for file in files) < 3_000_000
    assert sorted(files) == sorted(
        [*(ROOT / "docs" / "gallery").iterdir(), *(ROOT / "docs").glob("report-*.png")]
    )


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    first, *_ = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    exec(compile(first, "README.md", "exec"), {})  # noqa: S102 - our own page
    assert "top1" in capsys.readouterr().out
