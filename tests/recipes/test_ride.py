"""RIDE as recipes: its constants, its size, and a whole run with experts from training to report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from pydantic import ValidationError

import longtail as lt
from longtail import build, recipe
from longtail.data.images import EXTENSIONS
from longtail.engine import schedule
from longtail.engine.features import features
from longtail.engine.fit import train
from longtail.engine.load import evaluate_run
from longtail.errors import LongtailError, UsageError
from longtail.keys import Key
from longtail.recipe import (
    GCL,
    RIDE,
    SGD,
    Backbone,
    BalancedSoftmax,
    Distilled,
    Evaluation,
    Experts,
    PerExpert,
    Recipe,
)
from longtail.recipes import cells, digits, experts, paper, ride, stages
from longtail.report import describe
from longtail.report.page import write as report
from longtail.run.folder import RunFolder

# ------------------------------------------------------------------------------------------------- constants


@pytest.mark.parametrize("reduced, parameters", [(False, 1_344_784), (True, 770_896)])
def test_three_experts_for_ten_classes_have_the_published_size(reduced: bool, parameters: int) -> None:
    made = build.model(ride.ldam(classes=10, reduced=reduced).model, 10, Key(0))
    assert sum(parameter.numel() for parameter in made.parameters()) == parameters


def test_the_constants_are_those_of_the_published_configuration() -> None:
    made = ride.ldam()
    first, second = made.stages
    assert (first.epochs, second.epochs, first.batch_size) == (160, 40, 128)
    assert first.optimizer == second.optimizer == SGD(lr=0.1, weight_decay=5e-4, nesterov=True)
    assert first.schedule.drops == ((160, 0.01), (180, 0.0001)) and first.schedule.warmup == 5
    assert isinstance(first.loss, RIDE) and isinstance(second.loss, RIDE)
    assert (first.loss.diversity, first.loss.rho, made.images.rotation) == (-0.45, 0.05, 15.0)
    assert (first.loss.temperature, second.loss.temperature) == ("one", "by_count")
    assert first.mixing == second.mixing == recipe.Mixup(alpha=1.0)
    assert made.model == Experts(backbone=Backbone(name="resnet32"), head="cosine", count=3, reduced=False)
    large = {"imagenet_lt": (256, 0.1, 0.02, 0.4), "inat18": (512, 0.2, 0.015, 0.0)}
    for name, (batch, lr, rho, jitter) in large.items():
        first, second = (made := getattr(ride, name)("root")).stages
        assert (first.epochs, second.epochs, first.batch_size, first.optimizer.lr) == (80, 20, batch, lr)
        assert (first.loss.diversity, first.loss.rho, made.images.jitter) == (-0.2, rho, jitter)
        assert first.schedule.drops == ((60, 0.1), (80, 0.01)) and first.optimizer.weight_decay == 2e-4


@pytest.mark.parametrize("epochs", [200, 20, 2])
def test_the_deferred_stage_goes_on_in_the_schedule_with_its_momentum(epochs: int) -> None:
    first, second = ride.ldam(epochs=epochs).stages
    assert second.optimizer_state == "kept" and first.epochs + second.epochs == epochs
    whole = [schedule.factor(first.schedule, step, steps=1, epochs=epochs) for step in range(epochs)]
    parts = [
        schedule.factor(stage.schedule, step, steps=1, epochs=stage.epochs)
        for stage in (first, second)
        for step in range(stage.epochs)
    ]
    assert parts == whole and len(set(whole)) > 1


def test_gcl_takes_the_place_of_ldam_and_of_nothing_else() -> None:
    first, second = ride.gcl(form="angular").stages
    base = stages.gcl_first("angular")
    assert first.loss == replace(ride.ldam().stages[0].loss, base=base)
    assert second.loss == replace(ride.ldam().stages[1].loss, base=replace(base, reweight=True))
    same = [replace(stage, loss=GCL()) for stage in ride.ldam().stages]
    assert [replace(stage, loss=GCL()) for stage in (first, second)] == same


def test_without_re_weighting_there_is_one_stage_of_all_epochs() -> None:
    (only,) = ride.gcl(drw=False, noise="shared", mixup=False).stages
    assert only.epochs == 200 and only.mixing is None
    assert only.loss.noise == "shared" and not only.loss.base.reweight and only.loss.temperature == "one"


def test_each_recipe_stands_beside_its_row_of_the_paper() -> None:
    def figure(made: Recipe) -> float:
        published = paper.published(lt.recipes.overrides.plain(made))
        assert published is not None
        return published.value

    assert figure(ride.ldam(classes=10, ratio=50)) == 85.34
    assert figure(ride.gcl(classes=100, ratio=100, form="euclidean")) == 52.57
    assert figure(ride.gcl(classes=10, ratio=200, form="angular")) == 82.08
    assert figure(ride.imagenet_lt("root")) == 55.55
    assert figure(ride.inat18("root", each="gcl_e")) == 74.27
    assert figure(ride.places_lt("root", "weights", each="gcl_a")) == 41.50
    assert describe.method(lt.recipes.overrides.plain(ride.gcl(form="angular"))) == "RIDE + GCL-A"


def test_the_campaign_has_the_cell_of_three_experts() -> None:
    (cell,) = (cell for cell in cells.cells() if cell.name == "cifar100-r100-ride-gcl-angular-s0")
    assert cell.group == 2 and cell.make().precision == cells.PRECISION
    assert replace(cell.make(), precision="fp32") == ride.gcl(classes=100, ratio=100, form="angular")


def test_a_loss_that_does_not_fit_the_network_is_refused_before_anything_is_trained() -> None:
    made = ride.ldam()
    with pytest.raises(ValidationError, match="loss balanced_softmax is not for experts"):
        replace(made, stages=(made.stages[0], replace(made.stages[1], loss=BalancedSoftmax())))
    with pytest.raises(ValidationError, match="loss ride is not for one network"):
        replace(made, model=recipe.Classifier())


# ----------------------------------------------------------------------------------------------- a whole run


def small(loss: recipe.LDAM | GCL, **named: object) -> Recipe:
    return Recipe(
        name="ride.small",
        data=recipe.Digits(longtail=recipe.LongTail(ratio=20)),
        images=digits.IMAGES,
        model=Experts(backbone=Backbone(name="resnet8"), count=2),
        stages=experts.trained(
            loss,
            epochs=10,
            deferred=8,
            batch_size=64,
            optimizer=SGD(lr=0.1, weight_decay=5e-4, nesterov=True),
            drops=((8, 0.1), (9, 0.01)),
            diversity=-0.2,
            rho=0.05,
            alpha=None,
            **named,
        ),
        evaluation=Evaluation(every=10, last=1),
        log_every=1,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return train(small(stages.gcl_first("angular")), out=tmp_path_factory.mktemp("ride") / "run")


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_experts_learn_and_the_rate_falls_in_the_second_stage(run: RunFolder) -> None:
    assert run.read("final.json")["last"]["top1"] > 60  # ten classes
    rows = [json.loads(line) for line in (run.path / "steps.jsonl").read_text().splitlines()]
    assert {row["name"] for row in rows} == {"representation", "deferred"}
    assert rows[-1]["lr"] == pytest.approx(0.001) and rows[-1]["loss"] < rows[0]["loss"]


def test_the_prediction_is_the_mean_over_experts_of_the_clean_logits(
    run: RunFolder, images: torch.Tensor
) -> None:
    made = lt.load(run.path)
    with torch.no_grad():
        scores = made.model((images - made.mean) / made.std).scores
        assert scores.shape == (4, 2, 10) and (scores[:, 0] - scores[:, 1]).abs().max() > 1e-3
        torch.testing.assert_close(made(images), 30 * scores.mean(1))


def test_a_second_evaluation_gives_the_recorded_measures(run: RunFolder) -> None:
    recorded = run.read("final.json")["last"]
    again = evaluate_run(run.path)
    assert {name: again[name] for name in ("top1", "hits", "ece")} == {
        name: recorded[name] for name in ("top1", "hits", "ece")
    }


def test_predict_features_and_report_know_experts(run: RunFolder, tmp_path: Path) -> None:
    path = tmp_path / f"digit{sorted(EXTENSIONS)[0]}"
    Image.new("RGB", (8, 8), (90, 90, 90)).save(path)
    (prediction,) = lt.predict(run.path, [path])
    assert prediction.probabilities and sum(prediction.probabilities.values()) == pytest.approx(1, abs=1e-5)
    features(run.path)
    written = run.read_tensors("features.safetensors")
    assert written["test_features"].shape[1] == 2 * 64 and written["test_scores"].shape[1] == 10
    report([run.path], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "RIDE" in page and "2 experts" in page


@pytest.mark.parametrize("head", ["restarted", "scaled", "aligned"])
def test_a_head_of_experts_can_be_trained_again(run: RunFolder, tmp_path: Path, head: str) -> None:
    made = run.recipe()
    trains = ("head",) if head == "restarted" else ("scales",)
    again = stages.classifier(PerExpert(base=BalancedSoftmax(scale=30.0)), epochs=1, mixing=None)
    again = replace(again, head=head, trains=trains)
    short = tuple(replace(stage, epochs=1) for stage in made.stages)
    folder = train(replace(made, stages=(*short, again)), out=tmp_path / "run")
    before = build.model(made.model, 10, Key(0)).state_dict()
    after = folder.read_tensors("model.safetensors")
    inner = "head.each" if head == "restarted" else "head.head.each"
    assert {f"{inner}.0.weight", f"{inner}.1.weight"} <= set(after)
    assert (
        len(set(after) - {name.replace("head.each", inner) for name in before})
        == {
            "restarted": 0,
            "scaled": 1,
            "aligned": 4,
        }[head]
    )
    assert lt.load(folder.path)(torch.zeros(2, 3, 8, 8)).shape == (2, 10)
    if head == "restarted":
        assert not torch.equal(after[f"{inner}.0.weight"], after[f"{inner}.1.weight"])


def test_a_linear_head_in_the_place_of_several_is_refused_in_one_line(run: RunFolder, tmp_path: Path) -> None:
    made = run.recipe()
    again = stages.classifier(PerExpert(base=BalancedSoftmax()), epochs=1, mixing=None)
    short = tuple(replace(stage, epochs=1) for stage in made.stages)
    with pytest.raises(UsageError, match="Heads") as raised:
        train(replace(made, stages=(*short, replace(again, head="linear"))), out=tmp_path / "run")
    assert "\n" not in str(raised.value)


# ------------------------------------------------------------------------------------------- from a teacher


def taught(run: RunFolder, **changes: object) -> Recipe:
    made = run.recipe()
    first = replace(made.stages[0], epochs=1, loss=Distilled(base=made.stages[0].loss), teacher=str(run.path))
    return replace(made, stages=(first,), **changes)


def test_experts_learn_from_a_finished_run_which_stays_as_it_is(run: RunFolder, tmp_path: Path) -> None:
    before = (run.path / "model.safetensors").read_bytes()
    student = train(taught(run), out=tmp_path / "student")
    alone = replace(taught(run).stages[0], loss=run.recipe().stages[0].loss, teacher=None)
    other = train(replace(run.recipe(), stages=(alone,)), out=tmp_path / "alone")
    assert (run.path / "model.safetensors").read_bytes() == before
    # The same first batch and weights: what is added to the loss is the distance to the teacher.
    losses = [
        json.loads((f.path / "steps.jsonl").read_text().splitlines()[0])["loss"] for f in (student, other)
    ]
    assert losses[0] > losses[1] + 0.1
    assert lt.load(student.path)(torch.zeros(2, 3, 8, 8)).shape == (2, 10)


def test_a_teacher_that_does_not_fit_is_refused_before_anything_is_trained(
    run: RunFolder, tmp_path: Path
) -> None:
    other = replace(digits.IMAGES, mean=(0.5, 0.5, 0.5))
    with pytest.raises(UsageError, match="normalisation"):
        train(taught(run, images=other), out=tmp_path / "a")
    stage = replace(taught(run).stages[0], mixing=recipe.ManifoldMixup())
    with pytest.raises(UsageError, match="manifold"):
        train(replace(taught(run), stages=(stage,)), out=tmp_path / "b")
    with pytest.raises(ValidationError, match="go together"):
        replace(taught(run), stages=(replace(stage, teacher=None),))
    gone = replace(taught(run).stages[0], teacher=str(tmp_path / "gone"))
    with pytest.raises(LongtailError, match="gone"):
        train(replace(taught(run), stages=(gone,)), out=tmp_path / "c")


def test_a_recipe_with_a_teacher_is_the_same_beside_one_term_and_is_no_row_of_the_paper() -> None:
    made, alone = ride.ldam(teacher="runs/six"), ride.ldam()
    for stage, plain in zip(made.stages, alone.stages, strict=True):
        assert stage == replace(plain, loss=Distilled(base=plain.loss, temperature=1.5), teacher="runs/six")
    assert paper.published(lt.recipes.overrides.plain(made)) is None
    value = lt.recipes.overrides.plain(made)
    for path in made.provenance:
        found = value
        for part in path.split("."):
            found = found[int(part)] if isinstance(found, list) else found[part]
