from __future__ import annotations

import base64
import hashlib
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

from longtail.errors import UsageError
from longtail.report import page

MakeRun = Callable[..., Path]

# Reliability R19: names and paths from strangers, each of a kind that has broken some report.
HOSTILE = [
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</pre><img src=x onerror=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus='",
    "` onload=alert(1)`",
    "<iframe src=//evil.example>",
    "<a href=javascript:alert(1)>x</a>",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:msgbox(1)",
    "http://evil.example/x.png",
    "//evil.example/x.png",
    "<base href=http://evil.example/>",
    "<meta http-equiv=refresh content=0;url=http://evil.example>",
    "<link rel=stylesheet href=http://evil.example/a.css>",
    "<form action=http://evil.example><input name=a>",
    "<object data=x>",
    "<embed src=x>",
    "<math><mtext></mtext></math>",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "<?xml version='1.0'?>",
    "<!DOCTYPE html>",
    "&lt;script&gt;",
    "&#60;script&#62;",
    "&amp;",
    "&",
    "<",
    ">",
    '"',
    "'",
    "{{7*7}}",
    "{% raw %}",
    "{{ config }}",
    "${7*7}",
    "#{7*7}",
    "%s%n%x",
    "=HYPERLINK(1)",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\tcell",
    "\rcell",
    "a\nb",
    "\x1b]0;title\x07",
    "\x1b[31mred",
    "\x00nul",
    "\x07bell",
    "\x85next",
    "\u202eltr",
    "\u2066isolate",
    "\u2028line",
    "\ufffe",
    "\uffff",
    "\ufeffmark",
    "\udcff",
    "\ud800",
    "caf\udce9.png",
    "é" * 200,
    "\U0001f408",
    "漢字",
    "x" * 10_000,
    "",
    "   ",
    "../../etc/passwd",
    "C:\\Windows\\x",
    "url(http://evil.example)",
    "expression(alert(1))",
    "@import 'http://evil.example/a.css';",
]
BENIGN = [f"class {i}" for i in range(len(HOSTILE))]
COUNTS = [max(1, int(500 * 0.93**i)) for i in range(len(HOSTILE))]
ADDRESSES = {"src", "srcset", "href", "action", "data", "formaction", "poster", "background", "cite"}


@dataclass
class Dom(HTMLParser):
    """The skeleton of a page (tags and attribute names), its addresses and its text."""

    tags: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    style: str = ""
    policy: str = ""
    inside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.inside.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ADDRESSES]
        found = dict(attrs)
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        self.inside.append("/" + tag)

    def handle_data(self, data: str) -> None:
        if self.inside and self.inside[-1] == "style":
            self.style += data
        self.text.append(data)


def parsed(runs: Sequence[Path], out: Path) -> Dom:
    page.write(runs, out)
    dom = Dom()
    dom.feed(out.read_text(encoding="utf-8"))
    dom.close()
    return dom


def drawings(dom: Dom) -> list[ElementTree.Element]:
    head = "data:image/svg+xml;base64,"
    return [
        ElementTree.fromstring(base64.b64decode(a.removeprefix(head)))
        for a in dom.addresses
        if a.startswith(head)
    ]


def words(dom: Dom) -> str:
    return " ".join(" ".join(dom.text).split())


def test_the_page_tells_the_run(make_run: MakeRun, tmp_path: Path) -> None:
    text = words(parsed([make_run()], tmp_path / "out.html"))
    for part in (
        "GCL-A with ResNet-20, trained in two stages of 4 + 2 epochs",
        "4 classes, 325 training images (200 down to 5 a class), 40 test images",
        "50.00 90.00 60.00 25.00",  # top-1, many, medium, few in the headline row
        "51.00",  # the best epoch, apart
        "class 3 10.0 %",  # the worst class first
        "taken for class 0 (90 %)",
        "e" * 64,  # the manifest's hash
        "d" * 64,
        "GCL (form angular, cloud log)",
        "1,950",
        "1.5",  # minutes of timing.jsonl
        "Expected calibration error (15 bins): GCL-A: 0.125",
    ):
        assert part in text, part


def test_policy_allows_the_one_style_sheet_and_nothing_else(make_run: MakeRun, tmp_path: Path) -> None:
    dom = parsed([make_run()], tmp_path / "out.html")
    digest = base64.b64encode(hashlib.sha256(dom.style.encode()).digest()).decode()
    assert dom.policy.startswith(f"default-src 'none'; img-src data:; style-src 'sha256-{digest}';")
    assert "unsafe" not in dom.policy
    names = [name for name, _ in dom.tags]
    assert names.count("style") == 1 and "script" not in names and "link" not in names
    attributes = {attribute for _, found in dom.tags for attribute in found}
    assert "style" not in attributes and not any(name.startswith("on") for name in attributes)
    assert all(a.startswith(("data:image/", "#")) for a in dom.addresses)
    for picture in drawings(dom):
        for element in picture.iter():
            assert element.tag.split("}")[1] not in ("script", "style", "image", "foreignObject", "a", "use")
            assert not any(name == "style" or name.startswith("on") for name in element.attrib)


def test_every_picture_has_four_forms_a_description_and_finite_places(
    make_run: MakeRun, tmp_path: Path
) -> None:
    dom = parsed([make_run()], tmp_path / "out.html")
    charts = [found for name, found in dom.tags if name == "source"]
    assert len(charts) == 3 * 5  # groups, classes, curves, confusion, calibration
    for picture in drawings(dom):
        text = ElementTree.tostring(picture, encoding="unicode")
        assert "nan" not in text.lower().replace("sans", "") and "inf" not in text
        assert float(picture.attrib["width"]) in (360, 460, 960)
    images = [found for name, found in dom.tags if name == "img"]
    assert images and all({"alt", "width", "height"} <= set(found) for found in images)


def test_headings_descend_and_tables_say_what_their_heads_are(make_run: MakeRun, tmp_path: Path) -> None:
    dom = parsed([make_run("a"), make_run("b", loss={"kind": "cross_entropy"})], tmp_path / "out.html")
    levels = [int(name[1]) for name, _ in dom.tags if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))
    assert all("scope" in found for name, found in dom.tags if name == "th")
    assert ("html", ("lang",)) in dom.tags


def test_seeds_are_one_row_with_their_spread(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [
        make_run("a", seed=0),
        make_run("b", seed=1, hits=(10, 6, 4, 2)),
        make_run("c", loss={"kind": "focal"}),
    ]
    text = words(parsed(runs, tmp_path / "out.html"))
    assert "GCL-A 52.50 ± 3.54 (best)" in text
    assert "0, 1" in text and "digits.gcl" in text


def test_a_phone_has_room_for_the_figures_and_the_stages(make_run: MakeRun, tmp_path: Path) -> None:
    """The spread can stand below its mean, and the cells of a stage one below the other, with their names."""
    runs = [make_run("a", seed=0), make_run("b", seed=1, hits=(10, 6, 4, 2))]
    dom = parsed(runs, tmp_path / "out.html")
    assert " ± 3.54" in dom.text and "52.50" in dom.text
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    names = re.findall(r' data-name="([^"]*)"', text)
    assert names == ["Epochs", "Loss", "Sampling", "Mixing", "Trains", "Optimiser"] * 2
    assert "content: attr(data-name)" in dom.style and "td .spread { display: block" in dom.style


def test_no_line_break_parts_a_setting_from_its_value(make_run: MakeRun, tmp_path: Path) -> None:
    text = " ".join(parsed([make_run()], tmp_path / "out.html").text)
    for part in ("lr 0.1", "momentum 0.9", "decay 0.0002", "cloud log", "(alpha 1)"):
        assert part.replace(" ", "\u00a0") in text, part


def test_runs_on_other_data_stand_in_blocks_of_their_own(make_run: MakeRun, tmp_path: Path) -> None:
    dom = parsed([make_run("a"), make_run("b", counts=(300, 30, 3))], tmp_path / "out.html")
    assert sum(name == "h2" for name, _ in dom.tags) == 4  # two blocks, recipe, environment
    assert "(best)" not in words(dom)


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        (("predictions.safetensors", "features.safetensors"), "the confusions cannot be drawn"),
        (("predictions.safetensors", "features.safetensors"), "there is no reliability diagram"),
        (("samples.safetensors",), "No sample images were kept"),
    ],
)
def test_a_missing_file_leaves_a_plain_sentence(
    make_run: MakeRun, tmp_path: Path, missing: tuple[str, ...], sentence: str
) -> None:
    assert sentence not in words(parsed([make_run("whole")], tmp_path / "whole.html"))
    assert sentence in words(parsed([make_run("part", leave_out=missing)], tmp_path / "part.html"))


def test_a_run_that_has_just_begun_has_a_page(make_run: MakeRun, tmp_path: Path) -> None:
    names = ("final.json", "evals.jsonl", "steps.jsonl", "timing.jsonl", "env.json", "manifest.json")
    tensors = ("predictions.safetensors", "samples.safetensors", "features.safetensors")
    text = words(parsed([make_run(leave_out=(*names, *tensors))], tmp_path / "out.html"))
    assert "no evaluation has been written yet" in text
    assert "the run is not finished" in text
    assert "there are no curves" in text


def test_warnings_reach_the_notes(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(
        env={"dirty": True}, data={"notes": ["3 bad images were skipped."]}, leave_out=("final.json",)
    )
    other = make_run("b", seed=1, data={"digest": "f" * 64})
    text = words(parsed([run, other], tmp_path / "out.html"))
    for part in ("not committed", "3 bad images were skipped.", "not finished", "data digests differ"):
        assert part in text


def test_hostile_names_add_no_element_attribute_or_address(make_run: MakeRun, tmp_path: Path) -> None:
    assert len(HOSTILE) >= 60
    plain = parsed([make_run("a", counts=COUNTS, names=BENIGN)], tmp_path / "a.html")
    hostile = parsed([make_run("b", counts=COUNTS, names=HOSTILE)], tmp_path / "b.html")
    assert hostile.tags == plain.tags
    assert len(hostile.addresses) == len(plain.addresses)
    assert all(a.startswith(("data:image/", "#")) for a in hostile.addresses)
    shapes = [[(e.tag, sorted(e.attrib)) for e in picture.iter()] for picture in drawings(hostile)]
    assert shapes == [[(e.tag, sorted(e.attrib)) for e in picture.iter()] for picture in drawings(plain)]
    text = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert "<script>alert(1)</script>" in words(hostile)  # shown as text, not lost
    assert "{{7*7}}" in words(hostile)


@pytest.mark.parametrize("names", [HOSTILE[:10], HOSTILE[10:20], HOSTILE[20:30], HOSTILE[45:66]])
def test_hostile_names_on_the_axes_of_charts(make_run: MakeRun, tmp_path: Path, names: list[str]) -> None:
    counts = [100 - i for i in range(len(names))]
    plain = parsed([make_run("a", counts=counts, names=BENIGN[: len(names)])], tmp_path / "a.html")
    hostile = parsed([make_run("b", counts=counts, names=names)], tmp_path / "b.html")
    assert hostile.tags == plain.tags
    for ours, theirs in zip(drawings(plain), drawings(hostile), strict=True):
        assert [e.tag for e in ours.iter()] == [e.tag for e in theirs.iter()]


def test_hostile_text_everywhere_else(make_run: MakeRun, tmp_path: Path) -> None:
    bad = '"><img src=http://evil.example/x onerror=alert(1)>'
    first = {"name": bad, "loss": {"kind": bad, bad: bad}, "epochs": 4, "sampling": {"rule": bad}}
    run = make_run(
        'x"><img src=y>',
        recipe={"name": bad, "stages": [first], "provenance": {bad: bad}},
        env={"version": bad, bad: bad, "device": [bad]},
        data={"notes": [bad], "digest": bad},
    )
    dom = parsed([run], tmp_path / "out.html")
    named = [found for name, found in dom.tags if name == "img"]
    assert all("onerror" not in found for found in named)
    assert all(a.startswith(("data:image/", "#")) for a in dom.addresses)
    assert bad in words(dom)


def test_many_classes_and_many_runs_stay_below_two_megabytes(make_run: MakeRun, tmp_path: Path) -> None:
    counts = [max(2, int(1000 * 0.999**i)) for i in range(3000)]
    names = [f"{i} " + "n" * 300 for i in range(3000)]
    losses = ({"kind": "gcl", "form": "angular"}, {"kind": "focal"}, {"kind": "cross_entropy"})
    runs = [make_run(f"r{i}", counts=counts, names=names, loss=loss) for i, loss in enumerate(losses)]
    page.write(runs, tmp_path / "out.html")
    size = (tmp_path / "out.html").stat().st_size
    assert 50_000 < size < page.LARGEST


def test_hundreds_of_recipes_stay_below_two_megabytes(make_run: MakeRun, tmp_path: Path) -> None:
    note = {"note": "x" * 40_000}  # a long recipe in place of hundreds of runs
    runs = [
        make_run(f"r{i}", recipe={"name": f"method {i}", **note}, loss={"kind": "focal"}) for i in range(60)
    ]
    text = words(parsed(runs, tmp_path / "out.html"))
    assert (tmp_path / "out.html").stat().st_size < page.LARGEST
    assert "no room for 40 more" in text and "method 59 50.00" in text
    assert "no room" not in words(parsed(runs[:3], tmp_path / "few.html"))


def test_the_same_runs_give_the_same_bytes(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    page.write([run], tmp_path / "a.html")
    page.write([run], tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_no_run_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one"):
        page.write([], tmp_path / "out.html")


def test_the_recipe_can_be_copied_from_the_page(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    dom = parsed([run], tmp_path / "out.html")
    (block,) = (text for text in dom.text if text.startswith("{"))
    assert json.loads(block) == json.loads((run / "recipe.json").read_text())


def test_details_are_left_out_when_the_page_would_grow_too_large(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_run("a"), make_run("b", loss={"kind": "focal"})]
    whole = parsed(runs, tmp_path / "a.html")
    monkeypatch.setattr(page, "LARGEST", 1000)
    thin = parsed(runs, tmp_path / "b.html")
    assert (tmp_path / "b.html").stat().st_size < 0.9 * (tmp_path / "a.html").stat().st_size
    assert words(whole).count("taken for") > words(thin).count("taken for") > 0
    assert "GCL-A 50.00" in words(thin)
