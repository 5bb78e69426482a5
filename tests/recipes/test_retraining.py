"""Techniques over a finished first stage: what they are made of, and that each goes on exactly."""

from __future__ import annotations

import inspect
import json
import shutil
from dataclasses import replace
from typing import get_args

import pytest
import torch

from longtail import build, counts
from longtail.engine.fit import train
from longtail.engine.retrain import retrain
from longtail.errors import ModelFileError, UsageError
from longtail.recipe import (
    GCL,
    LADE,
    RIDE,
    BalancedSoftmax,
    ClassBalanced,
    Classifier,
    CrossEntropy,
    Experts,
    FeatureBalanced,
    Focal,
    HeldOut,
    LogitAdjusted,
    PerExpert,
    Recipe,
    Reweighted,
    TauNorm,
    continued,
    first_training,
)
from longtail.recipes import (
    catalogue,
    cifar,
    decoupled,
    imagenet_lt,
    inat18,
    memory,
    mislas,
    ncl,
    overrides,
    places_lt,
    ride,
)
from longtail.recipes.retraining import Choices, SamplingName, Technique, plan
from longtail.recipes.second_stages import has_targets
from longtail.run.folder import RunFolder

# Each sampling rule at least once; what a technique has no use for is left out.
SMALL = ("cifar", "baselines", "ride", "shike", "ncl", "contrastive")
EACH: dict[Technique, Choices] = {
    "crt": Choices("crt", "square_root", 1),
    "crt_decoupling": Choices("crt_decoupling", "class_aware", 1),
    "lws": Choices("lws", "effective_number", 1),
    "lws_decoupling": Choices("lws_decoupling", "progressive", 1),
    "tau_norm": Choices("tau_norm", "instance", 1, held_out="leftover"),
    "ncm": Choices("ncm", features="l2n"),
    "disalign": Choices("disalign", "cben", 1),
    "mislas": Choices("mislas", "reverse", 1),
    "logit_adjust": Choices("logit_adjust", tau=0.5),
    "none": Choices("none"),
}
FILES = ("evals.jsonl", "steps.jsonl", "final.json", "model.safetensors", "data.json", "recipe.json")


def first_of(tiny, technique: Technique) -> Recipe:
    """A GCL run, or a linear one where the technique needs a linear head."""
    if technique == "mislas":
        model = Classifier(backbone=tiny.recipe().model.backbone, head="linear")
        return tiny.recipe(tiny.stage(), model=model)
    return tiny.gcl()


def one_step(made, tiny):
    """Two steps for each stage that trains."""
    stages = tuple(replace(s, batch_size=200) if s.epochs else s for s in made.stages)
    return replace(made, stages=stages)


def same(one: RunFolder, other: RunFolder) -> list[str]:
    return [name for name in FILES if (one.path / name).read_bytes() != (other.path / name).read_bytes()]


@pytest.fixture(scope="module")
def firsts(tiny, tmp_path_factory):
    """Finished runs to go on from, each trained once."""
    held: dict[str, RunFolder] = {}

    def made(technique: Technique) -> RunFolder:
        kind = "linear" if technique == "mislas" else "cosine"
        if kind not in held:
            held[kind] = train(first_of(tiny, technique), out=tmp_path_factory.mktemp("first") / kind)
        return held[kind]

    return made


def test_every_technique_is_tried() -> None:
    assert set(EACH) == set(get_args(Technique))


@pytest.mark.parametrize("technique", get_args(Technique))
def test_every_technique_gives_the_whole_training_and_goes_on_exactly(
    tiny, firsts, one_commit, tmp_path, technique
) -> None:
    source = firsts(technique)
    made = one_step(plan(source.recipe(), EACH[technique]), tiny)
    given = dict(provenance=made.provenance, held_out=made.held_out)
    again = retrain(source.path, made.stages, out=tmp_path / "again", **given)
    whole_recipe = made.after(source.recipe())
    assert overrides.recipe(json.loads(json.dumps(overrides.plain(whole_recipe)))) == whole_recipe
    assert again.recipe() == whole_recipe
    whole = train(whole_recipe, out=tmp_path / "whole")
    assert same(again, whole) == []
    if any(stage.epochs for stage in made.stages):
        end = 2 * tiny.STEPS
        with pytest.raises(tiny.Killed), tiny.interrupted(end + 2, "killed"):
            retrain(source.path, made.stages, out=tmp_path / "cut", **given)
        assert same(retrain(source.path, made.stages, out=tmp_path / "cut", **given), whole) == []


def test_none_is_the_end_of_stage_one(firsts, tmp_path) -> None:
    run = retrain(firsts("none").path, (), out=tmp_path / "none")
    rows = [json.loads(line) for line in (firsts("none").path / "evals.jsonl").read_text().splitlines()]
    assert run.read("final.json")["last"] == [row for row in rows if row["stage"] == 0][-1]


def test_only_what_a_technique_trains_differs_from_stage_one(firsts, tmp_path, tiny) -> None:
    source = firsts("crt")
    before = retrain(source.path, (), out=tmp_path / "none").read_tensors("model.safetensors")
    frozen = one_step(plan(source.recipe(), EACH["crt"]), tiny)
    after = retrain(source.path, frozen.stages, out=tmp_path / "crt").read_tensors("model.safetensors")
    assert {n for n in before if not torch.equal(before[n], after[n])} == {"head.weight"}
    adapting = one_step(plan(source.recipe(), EACH["crt_decoupling"]), tiny)
    after = retrain(source.path, adapting.stages, out=tmp_path / "dec").read_tensors("model.safetensors")
    moved = {n for n in before if not torch.equal(before[n], after[n])}
    assert {n.rsplit(".", 1)[-1] for n in moved - {"head.weight"}} == {
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }


# ------------------------------------------------------------------------------------------ taking over


def test_a_run_of_one_stage_is_taken_over_from_its_sealed_model(firsts, one_commit, tmp_path, tiny) -> None:
    """As the campaign exports it: no checkpoints, the final model beside the numbers."""
    source = firsts("mislas")
    exported = tmp_path / "exported"
    shutil.copytree(source.path, exported)
    shutil.rmtree(exported / "checkpoints")
    made = one_step(plan(source.recipe(), EACH["mislas"]), tiny)
    one = retrain(source.path, made.stages, out=tmp_path / "one", provenance=made.provenance)
    two = retrain(exported, made.stages, out=tmp_path / "two", provenance=made.provenance)
    assert same(one, two) == []
    about = two.read("origin.json")
    assert about["recipe"] == source.digest() and about["env"] == source.read("env.json")


def test_a_changed_model_or_a_missing_checkpoint_is_refused_and_leaves_nothing(firsts, tmp_path) -> None:
    linear, cosine = tmp_path / "linear", tmp_path / "cosine"
    for technique, folder in (("mislas", linear), ("crt", cosine)):
        shutil.copytree(firsts(technique).path, folder)
        shutil.rmtree(folder / "checkpoints")
    data = bytearray((linear / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (linear / "model.safetensors").write_bytes(bytes(data))
    for folder in (linear, cosine):
        with pytest.raises((UsageError, ModelFileError), match="not there|damaged|not what"):
            retrain(folder, (), out=tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_held_out_images_must_not_come_from_the_training_images(firsts, tmp_path) -> None:
    made = plan(firsts("crt").recipe(), Choices("tau_norm", held_out="stratified"))
    with pytest.raises(UsageError, match="trained on others"):
        retrain(firsts("crt").path, made.stages, out=tmp_path / "out", held_out=made.held_out)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------------------------- the first training


def kept_on(tiny) -> Recipe:
    """One training written as two stages, as LDAM-DRW is."""
    first, second = tiny.stage(), tiny.stage(name="deferred", optimizer_state="kept")
    return tiny.recipe(first, second)


def test_a_deferred_stage_belongs_to_the_training_that_is_gone_on_from(tiny, one_commit, tmp_path) -> None:
    """Not the weights before it, whose learning rate has not dropped yet."""
    source = train(kept_on(tiny), out=tmp_path / "source")
    made = one_step(plan(source.recipe(), EACH["crt"]), tiny)
    whole_recipe = replace(made, stages=made.stages).after(source.recipe())
    assert [stage.name for stage in whole_recipe.stages] == ["representation", "deferred", "classifier"]
    assert "stages.2.sampling.rule" in whole_recipe.provenance
    assert "stages.1.sampling.rule" not in whole_recipe.provenance
    given = dict(provenance=made.provenance)
    again = retrain(source.path, made.stages, out=tmp_path / "again", **given)
    assert same(again, train(whole_recipe, out=tmp_path / "whole")) == []
    shutil.rmtree(source.path / "checkpoints")
    sealed = retrain(source.path, made.stages, out=tmp_path / "sealed", **given)
    assert same(sealed, again) == [], "the sealed model of such a run is the end of its first training"
    none = retrain(source.path, (), out=tmp_path / "none")
    assert none.read("final.json")["last"] == source.read("final.json")["last"]


def test_each_published_training_is_gone_on_from_at_its_end() -> None:
    for recipe, stages in ((cifar.ldam_drw(), 2), (ride.gcl(), 2), (ride.routed(), 2), (memory.mbj(), 2)):
        assert first_training(recipe) == stages
    for recipe in (cifar.gcl(), cifar.ce(), memory.oltr(), decoupled.mislas()):
        assert first_training(recipe) == 1


FIRSTS = [name for name in catalogue.functions() if not name.startswith(("folder.", "digits."))]


def refused(first: Recipe) -> set[str]:
    """The techniques that cannot follow: those for one network, and smoothing for a linear head."""
    is_linear = getattr(first.model, "head", "linear") == "linear" and not has_targets(first)
    several = {"tau_norm", "ncm"} if isinstance(first.model, Experts) else set()
    return several | (set() if is_linear else {"mislas"})


@pytest.mark.parametrize("name", FIRSTS)
def test_every_technique_follows_every_recipe_or_says_in_one_line_why_not(name) -> None:
    function = catalogue.functions()[name]
    needed = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    first = function(**dict.fromkeys(needed, "somewhere"))
    for technique in get_args(Technique):
        if technique in refused(first):
            with pytest.raises(UsageError) as error:
                plan(first, Choices(technique))
            assert "\n" not in str(error.value)
            continue
        made = plan(first, Choices(technique))
        whole = made.after(first)
        assert whole.stages == (*first.stages[: first_training(first)], *made.stages)
        plain = overrides.plain(whole)
        for path in whole.provenance:
            found(plain, path)


def found(value, path: str):
    """What a path of a recipe's JSON names; a part that this recipe leaves out is null."""
    for part in path.split("."):
        if value is None:
            break
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def test_experts_are_re_trained_with_a_loss_for_each_of_them() -> None:
    first = ride.gcl(form="angular")
    for technique in ("crt_decoupling", "lws_decoupling"):
        assert plan(first, Choices(technique)).stages[0].loss == PerExpert(base=CrossEntropy(scale=30.0))
    assert plan(first, Choices("disalign")).stages[0].loss == PerExpert(base=Reweighted(rho=1.2, scale=30.0))
    assert plan(ncl.cifar(), Choices("mislas")).stages[0].loss.base.kind == "label_aware_smoothing"
    crt = plan(first, Choices("crt")).stages[0].loss
    assert isinstance(crt, RIDE) and crt.base == cifar.gcl(form="angular").stages[1].loss
    with pytest.raises(UsageError, match="several experts"):
        plan(first, Choices("ncm"))


# ------------------------------------------------------------------------------------------ the constants


@pytest.mark.parametrize(
    "loss", [BalancedSoftmax(), LogitAdjusted(), LADE(), ClassBalanced(), FeatureBalanced(), Reweighted()]
)
def test_balanced_draws_are_not_corrected_by_the_loss_a_second_time(loss) -> None:
    first = cifar.ce(classes=10)
    first = replace(first, stages=(replace(first.stages[0], loss=loss),))
    for technique in ("crt", "lws"):
        assert plan(first, Choices(technique)).stages[0].loss == CrossEntropy()


def test_scales_of_an_angular_run_learn_by_the_euclidean_form() -> None:
    stage = plan(cifar.gcl(form="angular"), Choices("lws")).stages[0]
    assert stage.loss == cifar.gcl(form="euclidean").stages[1].loss


@pytest.mark.parametrize(
    "name", [n for n in FIRSTS if n.split(".")[0] in SMALL and "_lt" not in n and "18" not in n]
)
def test_scales_beyond_a_cosine_of_one_still_learn(name) -> None:
    """A cosine times a factor may pass 1, where there is no angle: clamped, it would have no gradient."""
    first = catalogue.functions()[name](classes=10)
    loss = build.loss(plan(first, Choices("lws")).stages[0].loss, counts.exponential(10, 500, 100))
    shape = (1, 3, 10) if isinstance(first.model, Experts) else (1, 10)
    scores = torch.full(shape, 0.1)
    scores[..., 0], scores[..., 1] = 0.85, 0.80
    factors = torch.full((10,), 1.3, requires_grad=True)
    loss(scores * factors, torch.tensor([1]), generator=torch.Generator().manual_seed(0)).backward()
    assert factors.grad is not None and factors.grad[1].abs() > 1e-4


def test_a_focal_factor_is_no_balance_and_stays() -> None:
    first = cifar.ce(classes=10)
    first = replace(first, stages=(replace(first.stages[0], loss=ClassBalanced(gamma=2.0)),))
    assert plan(first, Choices("crt")).stages[0].loss == Focal(gamma=2.0)


def test_provenance_of_other_hands_is_left_as_it_is() -> None:
    """It is free text in a user's JSON: paths of no stage, of all of them, of a stage as a whole."""
    first = replace(cifar.ldam_drw(), provenance={"stages.all.lr": "mine", "notes": "a", "stages.0": "b"})
    made = continued(first, (), provenance={"stages.1": "new", "stages": "c"})
    assert made.provenance == {
        "stages.all.lr": "mine",
        "notes": "a",
        "stages.0": "b",
        "stages.2": "new",
        "stages": "c",
    }


def test_decoupling_re_trains_longer_on_inaturalist() -> None:
    assert plan(inat18.gcl("somewhere"), Choices("crt_decoupling")).stages[0].epochs == 30
    assert plan(imagenet_lt.gcl("somewhere"), Choices("crt_decoupling")).stages[0].epochs == 10


def test_both_variants_of_re_training_are_those_of_their_codes() -> None:
    first = cifar.gcl(classes=10, ratio=100)
    (released,) = plan(first, Choices("crt")).stages
    assert released == first.stages[1]
    (decoupling,) = plan(first, Choices("crt_decoupling")).stages
    assert decoupling.head == "restarted" and decoupling.batchnorm == "adapting" and decoupling.mixing is None
    assert decoupling.loss == CrossEntropy(scale=30.0) and decoupling.sampling.rule == "class_aware"
    assert (decoupling.optimizer.lr, decoupling.schedule.kind) == (0.1, "cosine")
    large = plan(places_lt.gcl("somewhere", "weights"), Choices("crt")).stages[0]
    assert isinstance(large.loss, GCL) and large.loss.scale == 15.0 and large.batch_size == 512


def test_a_changed_cloud_goes_on_into_the_second_stage() -> None:
    first = cifar.gcl(classes=10)
    stage = replace(first.stages[0], loss=GCL(cloud="power", power=0.3))
    (made,) = plan(replace(first, stages=(stage,)), Choices("crt")).stages
    assert isinstance(made.loss, GCL) and (made.loss.cloud, made.loss.power) == ("power", 0.3)


def test_tau_norm_trains_a_probe_on_cosines_only() -> None:
    cosine, linear = cifar.gcl(classes=10), cifar.ce(classes=10)
    probe, sweep = plan(cosine, Choices("tau_norm", held_out="file")).stages
    assert (probe.head, probe.sampling.rule, probe.loss, probe.mixing) == (
        "linear",
        "instance",
        CrossEntropy(),
        None,
    )
    assert isinstance(sweep.posthoc, TauNorm) and sweep.posthoc.taus == tuple(i / 10 for i in range(21))
    (raw,) = plan(cosine, Choices("tau_norm", source="raw_anchor_norm")).stages
    assert isinstance(raw.posthoc, TauNorm) and raw.posthoc.source == "raw_anchors"
    assert len(plan(linear, Choices("tau_norm")).stages) == 1
    assert plan(linear, Choices("tau_norm", held_out="file")).held_out == HeldOut(source="file")


@pytest.mark.parametrize(
    ("classes", "ratio", "expected"),
    [
        (10, 100, (0.3, 0.0, 0.5, "frozen")),
        (10, 50, (0.2, 0.0, 0.2, "frozen")),
        (100, 100, (0.4, 0.1, 0.2, "adapting")),
        (100, 10, (0.2, 0.0, 0.1, "adapting")),
    ],
)
def test_mislas_has_its_constants_for_each_data_set(classes, ratio, expected) -> None:
    stage, provenance = mislas.second(cifar.ce(classes=classes, ratio=ratio))
    found = (stage.loss.head, stage.loss.tail, stage.head_lr_factor, stage.batchnorm)  # type: ignore[union-attr]
    assert found == expected and "inferred" not in provenance["stages.1.loss.head"]
    _, provenance = mislas.second(cifar.ce(classes=classes, ratio=200))
    assert provenance["stages.1.loss.head"].startswith("inferred")


@pytest.mark.parametrize("rule", get_args(SamplingName))
def test_the_sampling_asked_for_is_the_stage_s(rule) -> None:
    made = plan(cifar.gcl(classes=10), Choices("lws", rule))
    assert made.stages[0].sampling.rule == rule
    assert made.provenance["stages.1.sampling.rule"] == "set by whoever re-trained"


def test_arguments_without_a_use_are_refused() -> None:
    for given in (
        dict(technique="ncm", epochs=3),
        dict(technique="crt", tau=1.0),
        dict(technique="none", sampling="reverse"),
    ):
        with pytest.raises(ValueError, match="has no use for"):
            Choices(**given)
    with pytest.raises(UsageError, match="cosine head"):
        plan(cifar.gcl(), Choices("mislas"))
    with pytest.raises(UsageError, match="linear probe"):
        plan(cifar.ce(), Choices("tau_norm", "reverse"))
    with pytest.raises(UsageError, match="cosine head"):
        plan(cifar.ce(), Choices("tau_norm", source="linear_probe"))


def test_the_paper_s_row_is_found_for_each_cell() -> None:
    from longtail.recipes import paper
    from longtail.recipes.cells import cells

    rows = {cell.name: paper.published(overrides.plain(cell.make())) for cell in cells() if cell.after}
    expected = {
        "cifar10-r100-retrain-lws-s0": 82.25,
        "cifar10-r100-retrain-tau-s0": 82.16,
        "cifar10-r100-ce-crt-s0": 79.15,
        "cifar100-r100-ce-crt_decoupling-s0": 45.12,
    }
    for name, value in expected.items():
        row = rows[name]
        assert row is not None and row.value == value
