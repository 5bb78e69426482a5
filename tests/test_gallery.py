"""The gallery: the command line takes every command, every figure is shown. The code of the README runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import cast

import pytest
import typer
from PIL import Image, ImageChops, ImageStat

from longtail.cli.failures import Session
from longtail.cli.main import app
from longtail.recipes import catalogue
from longtail.report.figures import NAMES, figure
from longtail.report.tables import table

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


DRAWN_HERE = [
    arguments
    for arguments in COMMANDS
    if arguments[0] == "figure"  # those that need nothing but the files of this repository
    and arguments[1] not in ("confusion", "calibration", "logit_gap", "distortion", "tsne", "head_tail")
]


def difference(one: Path, other: Path) -> float:
    """The mean difference of two pictures in levels of grey, seen from afar; 255 where their sizes differ."""
    small: list[Image.Image] = []
    for path in (one, other):
        image = Image.open(path).convert("L")
        small.append(image.resize((image.width // 8, image.height // 8), Image.Resampling.BOX))
    if small[0].size != small[1].size:
        return 255.0
    return ImageStat.Stat(ImageChops.difference(*small)).mean[0]


@pytest.mark.parametrize("arguments", DRAWN_HERE, ids=lambda arguments: arguments[1])
def test_a_picture_is_what_its_command_draws(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    found = parsed(arguments)
    name, runs = Path(str(found["out"])).name, cast("list[Path]", found["runs"] or [])
    figure(str(found["name"]), tmp_path / name, runs)
    assert difference(tmp_path / f"{name}.png", ROOT / "docs" / "gallery" / f"{name}.png") < 1


def test_another_picture_would_be_noticed() -> None:
    assert len(DRAWN_HERE) == 9
    folder = ROOT / "docs" / "gallery"
    assert difference(folder / "clouds.png", folder / "samplers.png") > 5
    assert difference(folder / "confusion-ce.png", folder / "confusion-gcl.png") > 1


def test_the_table_is_what_its_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (arguments,) = (a for a in COMMANDS if a[0] == "table")
    found = parsed(arguments)
    (shown,) = re.findall(r"^```latex\n(.*?)^```$", GALLERY, flags=re.MULTILINE | re.DOTALL)
    assert table(cast("list[Path]", found["runs"]), str(found["format"])).strip() == shown.strip()


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    first, *_ = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    exec(compile(first, "README.md", "exec"), {})  # noqa: S102 - our own page
    assert "top1" in capsys.readouterr().out
