from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from longtail.errors import UsageError
from longtail.report.figures import NAMES, draw, figure, files
from longtail.report.figures.canvas import Request
from longtail.report.style import paper

MakeRun = Callable[..., Path]

FORMULAS = ("overview", "margins_schematic", "class_margins", "logit_curves", "clouds", "samplers")
FROM_RUNS = ("groups", "logit_gap", "per_class", "curves", "confusion", "calibration")
EMBEDDED = ("distortion", "tsne", "head_tail")
ALONE = ("confusion", "distortion")  # figures of one run


def check_files(prefix: Path, keys: set[str]) -> None:
    """The four files are there, whole and not blank."""
    svg, pdf, png, npz = files(prefix)
    root = ElementTree.parse(svg).getroot()
    assert root.tag.endswith("svg") and len(list(root.iter())) > 30
    assert pdf.read_bytes()[:5] == b"%PDF-" and b"CreationDate" not in pdf.read_bytes()
    image = Image.open(png)
    assert image.width >= 840 and len(image.convert("RGB").getcolors(1 << 20) or []) > 20
    with np.load(npz, allow_pickle=False) as arrays:
        assert set(arrays.files) == keys


def test_every_name_is_covered_here() -> None:
    assert sorted((*FORMULAS, *FROM_RUNS, *EMBEDDED)) == sorted(NAMES)


@pytest.mark.parametrize("name", FORMULAS)
def test_figures_of_formulas_need_no_run(tmp_path: Path, name: str) -> None:
    arrays = figure(name, tmp_path / "deep" / name)
    check_files(tmp_path / "deep" / name, set(arrays))


@pytest.mark.parametrize("name", FROM_RUNS)
def test_figures_of_runs(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    runs = [make_run("a", seed=0), make_run("b", seed=1), make_run("c", loss={"kind": "cross_entropy"})]
    if name in ALONE:
        runs = runs[:1]
    check_files(tmp_path / name, set(figure(name, tmp_path / name, runs)))


@pytest.mark.parametrize("name", EMBEDDED)
def test_figures_of_features(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    pytest.importorskip("sklearn")
    runs = [make_run("a"), make_run("b", loss={"kind": "cross_entropy"})]
    if name in ALONE:
        runs = runs[:1]
    arrays = figure(name, tmp_path / name, runs, most=60)
    check_files(tmp_path / name, set(arrays))


def test_the_toy_figure_says_how_large_each_class_became(make_run: MakeRun, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    arrays = figure("distortion", tmp_path / "a", [make_run()])
    assert arrays["classes"].tolist() == [0, 1, 2, 3]
    assert np.bincount(arrays["labels"]).tolist() == [40, 40, 20, 5]
    assert arrays["areas"].shape == (4,) and (arrays["areas"] > 0).all()
    assert arrays["distances"] == pytest.approx(np.full(4, 12**0.5), rel=0.25)  # 6 unit normals a point
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert f">class 0 (40), spread {arrays['distances'][0]:.2f}<" in text


def test_head_and_tail_are_the_most_and_the_least_frequent_class(make_run: MakeRun, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    run = make_run(counts=(20, 200, 5, 100), hits=(9, 9, 9, 9))
    arrays = figure("head_tail", tmp_path / "a", [run])
    assert sorted(set(arrays["labels_0"].tolist())) == [1, 2]
    assert {"boundary_x_0", "boundary_y_0", "boundary_values_0"} <= set(arrays)
    decided = arrays["decisions_0"] == (arrays["labels_0"] == 2)
    assert decided.mean() > 0.9  # the features are far apart, so the model's decisions are right


def test_a_model_that_never_names_the_tail_has_no_boundary(make_run: MakeRun, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    run = make_run()
    tensors = load_file(run / "features.safetensors")
    for split in ("train", "test"):
        tensors[f"{split}_scores"][:, 3] = -100
    save_file(tensors, run / "features.safetensors")
    arrays = figure("head_tail", tmp_path / "a", [run])
    assert "boundary_values_0" not in arrays
    assert "all taken for class 0" in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_clouds_and_samplers_are_the_librarys_own(tmp_path: Path) -> None:
    sizes = figure("clouds", tmp_path / "a", counts=(5000, 500, 50))["sizes"]
    assert sizes[0] == pytest.approx([0, 0.5, 1])
    assert sizes[1] == pytest.approx([0.01**0.25, 0.1**0.25, 1])
    chances = figure("samplers", tmp_path / "b", counts=(400, 100, 25))["probabilities"]
    assert chances[0] == pytest.approx(np.array([400, 100, 25]) / 525)
    assert chances[1] == pytest.approx(np.array([20, 10, 5]) / 35)
    assert chances[3] == pytest.approx(np.full(3, 1 / 3))


def test_the_boundary_of_the_overview_follows_from_its_anchors(tmp_path: Path) -> None:
    arrays = figure("overview", tmp_path / "a")
    for when in ("before", "after"):
        angle = float(arrays[f"boundary_{when}"][0])
        head, tail = arrays[f"anchors_{when}"] @ np.array([np.cos(angle), np.sin(angle)])
        assert head == pytest.approx(tail) and head > 0
    assert np.rad2deg(arrays["boundary_after"]) == pytest.approx([(76 + 8) / 2])  # anchors of one length
    assert np.rad2deg(arrays["boundary_before"][0]) < 30  # turned to the tail by the head's long anchor


def test_what_a_logit_loses_is_drawn_on_a_scale_of_its_own(tmp_path: Path) -> None:
    """With a cloud of 0.1 three curves lie within two hundredths of the plane's height."""
    request = Request()
    with paper():
        drawn = draw("logit_curves", request)
    small, large = drawn.figure.axes[2:]
    for axis, delta in ((small, 0.1), (large, 0.5)):
        line = np.asarray(axis.lines[0].get_ydata())
        assert line == pytest.approx(np.full(361, delta * 0.2248), rel=1e-3)  # GCL-E: the median of |e|
    assert small.get_ylim()[1] < 0.15 < large.get_ylim()[1]


def test_an_ending_is_not_doubled(tmp_path: Path) -> None:
    figure("clouds", tmp_path / "a.png", counts=(50, 5))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "a.pdf", "a.png", "a.svg"]
    assert files(tmp_path / "a.png") == files(tmp_path / "a")
    assert files("delta0.5")[2] == Path("delta0.5.png")


def test_groups_and_gap_by_hand(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run("a", seed=0), make_run("b", seed=1, hits=(10, 6, 4, 2))]
    arrays = figure("groups", tmp_path / "a", runs)
    assert arrays["mean"][0].tolist() == [52.5, 95.0, 60.0, 27.5]
    assert arrays["std"][0] == pytest.approx([12.5**0.5, 50**0.5, 0, 12.5**0.5])
    assert "stroke: #ffffff; stroke-width: 2.4" in (tmp_path / "a.svg").read_text(), "edges of the spreads"
    gaps = figure("logit_gap", tmp_path / "b", runs[:1])["gaps"]
    assert gaps[0].tolist() == pytest.approx([3 * h / 10 - 3 * (10 - h) / 10 for h in (9, 6, 4, 1)])


def test_a_group_without_classes_has_no_bar(make_run: MakeRun, tmp_path: Path) -> None:
    arrays = figure("groups", tmp_path / "a", [make_run(counts=(500, 400, 90, 50))])
    assert np.isnan(arrays["mean"][0, 3])
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert ">medium<" in text and ">few<" not in text


def test_few_classes_stand_under_their_names_and_many_do_not(make_run: MakeRun, tmp_path: Path) -> None:
    for name in ("per_class", "logit_gap"):
        figure(name, tmp_path / name, [make_run(f"{name}-few")])
        assert ">class 3<" in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        counts = [500 - i for i in range(40)]
        figure(name, tmp_path / name, [make_run(f"{name}-many", counts=counts)])
        text = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        assert ">class 3<" not in text and "from the most to the fewest" in text


@pytest.mark.parametrize("name", ["per_class", "logit_gap", "confusion"])
def test_long_names_of_one_beginning_stay_apart(name: str, make_run: MakeRun, tmp_path: Path) -> None:
    names = [f"Great_crested_{bird}" for bird in ("Grebe", "Tern", "Flycatcher", "Newt")]
    figure(name, tmp_path / name, [make_run(names=names)])
    cut = re.findall(r">(Gr[^<]*…[^<]*)<", (tmp_path / f"{name}.svg").read_text(encoding="utf-8"))
    assert len(set(cut)) == 4


def test_the_groups_are_named_below_the_bars_where_there_is_room(make_run: MakeRun, tmp_path: Path) -> None:
    for name, counts in (("wide", (200, 100, 20, 5)), ("narrow", (200, 90, *(9,) * 60))):
        figure("per_class", tmp_path / name, [make_run(name, counts=counts)])
    wide, narrow = (
        {word for word in ("many", "medium", "few") if f">{word}<" in text}
        for text in ((tmp_path / f"{n}.svg").read_text(encoding="utf-8") for n in ("wide", "narrow"))
    )
    assert wide == {"many", "medium", "few"} and narrow == {"few"}


def test_confusion_and_calibration_are_drawn_from_features_too(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(leave_out=("predictions.safetensors",))
    assert figure("confusion", tmp_path / "a", [run])["matrix"].sum() == 40
    assert "share_0" in figure("calibration", tmp_path / "b", [run])


def test_curves_place_the_second_stage_after_the_first(make_run: MakeRun, tmp_path: Path) -> None:
    arrays = figure("curves", tmp_path / "a", [make_run()])
    assert arrays["top1_x_0_0"].tolist() == [2, 4, 5, 6]
    assert arrays["top1_0_0"].tolist() == [22.5, 22.5, 50.0, 50.0]
    assert arrays["loss_x_0_0"].tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("name", ["overview", "calibration"])
def test_the_same_input_gives_the_same_bytes(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    run = make_run()
    for prefix in ("a", "b"):
        figure(name, tmp_path / prefix, [run])
    for one, two in zip(files(tmp_path / "a"), files(tmp_path / "b"), strict=True):
        assert one.read_bytes() == two.read_bytes(), one.suffix


def test_hostile_names_are_text_in_figures(make_run: MakeRun, tmp_path: Path) -> None:
    names = ["<script>x</script>", "$\\frac{1}{0", "a$b$c\x1b[0m", "\udcff漢"]
    run = make_run(names=names, recipe={"name": "$x"}, loss={"kind": "focal"})
    figure("confusion", tmp_path / "a", [run])
    figure("groups", tmp_path / "b", [run])
    tags = {element.tag.split("}")[1] for element in ElementTree.parse(tmp_path / "a.svg").getroot().iter()}
    assert "script" not in tags


def test_what_is_missing_is_said_in_one_line(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(leave_out=("features.safetensors", "predictions.safetensors"))
    for name, message in {
        "tsne": "longtail features",
        "distortion": "longtail features",
        "confusion": "has no predictions; write them with: longtail features",
        "calibration": "none of these runs",
        "logit_gap": "neither predictions nor features",
        "nonsense": "there is no figure nonsense; there are: distortion",
    }.items():
        with pytest.raises(UsageError, match=message):
            figure(name, tmp_path / "a", [run])
    with pytest.raises(UsageError, match="needs a run folder"):
        figure("groups", tmp_path / "a")
    assert not list(tmp_path.glob("a.*"))


@pytest.mark.parametrize("name", sorted({*FROM_RUNS, "tsne", "head_tail"} - set(ALONE)))
def test_runs_on_other_data_are_not_compared(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    """The accuracies of one data set would otherwise stand in the order of the classes of another."""
    for other in (make_run("more", counts=(300, 200, 150, 60, 40, 5)), make_run("fewer", counts=(90, 9))):
        with pytest.raises(UsageError, match="compares runs on the same data"):
            figure(name, tmp_path / "a", [make_run(f"a-{other.name}"), other])
    assert not list(tmp_path.glob("a.*"))


def test_no_run_is_left_out_in_silence(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run(f"r{seed}", seed=seed) for seed in range(5)]
    for name, message in {
        "confusion": "shows one run folder, 5 were given",
        "distortion": "shows one run folder, 5 were given",
        "tsne": "shows up to 4 run folders, 5 were given",
        "head_tail": "shows up to 4 run folders, 5 were given",
    }.items():
        with pytest.raises(UsageError, match=message):
            figure(name, tmp_path / "a", runs)


def test_many_classes_have_a_scale_from_head_to_tail(make_run: MakeRun, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    figure("tsne", tmp_path / "many", [make_run("a", counts=[400 - 20 * i for i in range(18)])], most=80)
    text = (tmp_path / "many.svg").read_text(encoding="utf-8")
    assert ">most images (400)<" in text and ">fewest (60)<" in text
    figure("tsne", tmp_path / "few", [make_run("b")], most=80)
    assert "fewest" not in (tmp_path / "few.svg").read_text(encoding="utf-8")


def test_columns_of_one_method_are_told_apart(make_run: MakeRun, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    runs = [make_run("a", seed=3), make_run("b", loss={"kind": "cross_entropy"}), make_run("c", seed=7)]
    for name in ("tsne", "head_tail"):
        figure(name, tmp_path / name, runs, most=60)
        text = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        places = [text.index(f">{title}<") for title in ("GCL-A, seed 3", "Decoupling", "GCL-A, seed 7")]
        assert places == sorted(places)


def test_the_help_names_every_figure() -> None:
    from longtail.cli import figure as command

    assert tuple(command.NAMES.split(", ")) == NAMES


def test_matplotlib_is_loaded_by_figures_only() -> None:
    code = (
        "import sys; import longtail.report.page, longtail.report.tables, longtail.report.ledger, "
        "longtail.report.figures, longtail.report.style; "
        "sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
