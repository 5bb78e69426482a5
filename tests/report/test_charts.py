"""The pictures of the page as shapes: nothing is cut, nothing is hidden, a colour means one entry."""

from __future__ import annotations

import base64
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from longtail.report import measures, pictures
from longtail.report.charts import calibration, curves, groups
from longtail.report.reading import read
from longtail.report.style import DARK, LIGHT, Theme
from longtail.report.summary import entries
from longtail.report.svg import Drawing

MakeRun = Callable[..., Path]

SVG = "{http://www.w3.org/2000/svg}"
LETTER = 0.5  # of the font's size: narrower than any letter of a word is on the average


def elements(drawing: Drawing, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(drawing.markup()).iter(SVG + tag))


def places(element: ElementTree.Element) -> list[tuple[float, float]]:
    pairs = (pair.split(",") for pair in element.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]


def is_cut(text: ElementTree.Element, width: float) -> bool:
    """A text that is not turned and leaves the picture at its left or right."""
    if "transform" in text.attrib:
        return False
    long = LETTER * float(text.attrib["font-size"]) * len(text.text or "")
    share = {"middle": 0.5, "end": 1.0}.get(text.attrib.get("text-anchor", ""), 0.0)
    left = float(text.attrib["x"]) - share * long
    return left < -0.5 or left + long > width + 0.5


def test_no_text_of_a_picture_is_cut(make_run: MakeRun) -> None:
    """The last value of an axis, above all: half of it lies beyond the frame."""
    runs = [read(make_run("a")), read(make_run("b", loss={"kind": "focal"}))]
    for found in (entries(runs[:1]), entries(runs)):
        drawn = [pictures.by_group(found), pictures.by_class(found), pictures.over_time(found)]
        drawn += [pictures.calibrated(found)]
        for picture in drawn:
            assert picture is not None
            for address in (picture.desk_light, picture.phone_dark):
                root = ElementTree.fromstring(base64.b64decode(address.split(",")[1]))
                texts = list(root.iter(SVG + "text"))
                cut = [text.text for text in texts if is_cut(text, float(root.attrib["width"]))]
                assert texts and not cut


def test_long_names_of_one_beginning_stay_apart_on_the_axes(make_run: MakeRun) -> None:
    names = [f"Great_crested_{bird}" for bird in ("Grebe", "Tern", "Flycatcher", "Newt")]
    run = read(make_run(names=names))
    found = pictures.confusions(run)
    assert found is not None
    for picture, times in ((pictures.by_class(entries([run])), 1), (found[0], 2)):
        for address in (picture.desk_light, picture.phone_dark):
            root = ElementTree.fromstring(base64.b64decode(address.split(",")[1]))
            cut = [text.text for text in root.iter(SVG + "text") if "…" in (text.text or "")]
            assert len(cut) == 4 * times and len(set(cut)) == 4


def test_a_cut_text_would_be_found() -> None:
    drawing = Drawing(100, 20)
    drawing.text((98, 10), "100", "#000", anchor="middle")
    assert is_cut(elements(drawing, "text")[0], 100)


@pytest.mark.parametrize("compact", [False, True])
def test_names_of_stages_stand_above_the_curves(compact: bool) -> None:
    line = curves.Line("a", np.arange(11.0), np.full(11, 10.0), 0)
    panel = curves.Panel("loss", [line], 10.0)
    edges = [(0.0, "representation"), (8.0, "classifier")]
    drawing = curves.draw([panel], edges, 10.0, LIGHT, compact=compact)
    (curve,) = elements(drawing, "polyline")
    names = [t for t in elements(drawing, "text") if t.text in ("representation", "classifier")]
    assert len(names) == 2
    assert all(float(name.attrib["y"]) < min(y for _, y in places(curve)) for name in names)


def test_names_of_stages_do_not_run_into_each_other() -> None:
    panel = curves.Panel("loss", [], 1.0)
    edges = [(0.0, "representation"), (1.0, "deferred"), (2.0, "classifier"), (60.0, "last")]
    drawing = curves.draw([panel], edges, 100.0, LIGHT, compact=True)
    known = [t for t in elements(drawing, "text") if t.text in {name for _, name in edges}]
    assert [t.text for t in known] == ["representation", "last"]


def test_the_loss_of_each_stage_is_a_curve_of_its_own(make_run: MakeRun) -> None:
    first, second = pictures.losses(read(make_run()))
    assert first[0].tolist() == [1, 2, 3, 4] and first[1].tolist() == [2, 1, pytest.approx(2 / 3), 0.5]
    assert second[0].tolist() == [5, 6] and second[1].tolist() == [2, 1]


def test_a_noisy_loss_is_a_shade_behind_its_trend(make_run: MakeRun) -> None:
    run = make_run()
    rows = [{"stage": 0, "epoch": 1 + i // 15, "step": i + 1, "loss": 1.0 + i % 2} for i in range(40)]
    (run / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    picture = pictures.over_time(entries([read(run)]))
    assert picture is not None
    root = ElementTree.fromstring(base64.b64decode(picture.desk_light.split(",")[1]))
    shade, trend, *_ = (e for e in root.iter(SVG + "polyline"))
    assert float(shade.attrib["stroke-opacity"]) < 0.3 and "stroke-opacity" not in trend.attrib
    assert shade.attrib["stroke"] == trend.attrib["stroke"] == LIGHT.ink  # blue are the many, beside it
    heights = [np.ptp([y for _, y in places(line)[5:-5]]) for line in (shade, trend)]
    assert heights[1] < 0.25 * heights[0]


def test_an_entry_keeps_its_colour_where_another_has_no_predictions(make_run: MakeRun) -> None:
    missing = ("predictions.safetensors", "features.safetensors")
    runs = [make_run("a", leave_out=missing), make_run("b", loss={"kind": "focal"}), make_run("c", seed=1)]
    found = entries([read(run) for run in runs])
    seen: list[list[int]] = []
    original = calibration.draw

    def draw(bins: object, titles: object, colors: list[int], *args: object, **named: object) -> Drawing:
        seen.append(colors)
        return original(bins, titles, colors, *args, **named)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "draw", draw)
        pictures.calibrated(found)
    assert seen and all(colors == [1] for colors in seen)


def test_a_bin_of_few_images_is_pale_and_bends_no_line() -> None:
    full, few = np.log([3.0, 9.0]), np.log([1.5])  # confidence 0.75 and 0.9; 0.6
    gaps = np.repeat([*full, *few], [10, 12, 9])
    logits = np.stack([gaps, np.zeros(31)], axis=1)
    bins = measures.reliability(logits, np.zeros(31, np.int64))
    single = calibration.draw([bins], ["a"], [0], LIGHT, compact=True)
    bars = [e for e in elements(single, "rect") if e.attrib["fill"] == LIGHT.series[0]]
    assert len(bars) == 6  # three above, three below
    assert sum("fill-opacity" in bar.attrib for bar in bars) == 2
    several = calibration.draw([bins, bins], ["a", "b"], [0, 1], LIGHT, compact=True)
    assert ["fill-opacity" in e.attrib for e in elements(several, "circle")] == [True, False, False] * 2
    assert sorted(len(places(line)) for line in elements(several, "polyline")) == [2, 2, 15, 15]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_a_spread_has_an_edge_of_the_ground_around_it(theme: Theme) -> None:
    drawing = groups.draw([groups.Group("Many", "", [(50.0, 5.0)])], ["one"], theme, compact=False)
    edge, line = (e.attrib for e in elements(drawing, "line") if e.attrib["y1"] == e.attrib["y2"])
    assert (edge.pop("stroke"), line.pop("stroke")) == (theme.ground, theme.ink)
    assert float(edge.pop("stroke-width")) > 2 * float(line.pop("stroke-width")) and edge == line
    style = (Path(pictures.__file__).parent / "templates" / "page.css").read_text(encoding="utf-8")
    assert f"--ground: {theme.ground};" in style


def test_the_line_of_perfect_calibration_lies_over_the_bars(make_run: MakeRun) -> None:
    (entry,) = entries([read(make_run())])
    picture = pictures.calibrated([entry])
    assert picture is not None
    root = ElementTree.fromstring(base64.b64decode(picture.desk_light.split(",")[1]))
    dashed = [i for i, e in enumerate(root) if "stroke-dasharray" in e.attrib]
    bars = [i for i, e in enumerate(root) if e.tag == SVG + "rect"]
    assert len(dashed) == 1 and bars and dashed[0] > max(bars)
