"""longtail.models and longtail.build.models: what the loop trains, and its construction from a spec."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from longtail import backbones, heads, models, recipe
from longtail.build.models import model as build
from longtail.errors import UsageError
from longtail.keys import Key

KEY = Key(0).fold("model")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int = 4, side: int = 8, seed: int = 7) -> Tensor:
    return torch.rand(count, 3, side, side, generator=seeded(seed))


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def small(kind: str, **fields: object) -> nn.Module:
    spec = {
        "classifier": recipe.Classifier,
        "experts": recipe.Experts,
        "two_branch": recipe.TwoBranch,
        "contrasted": recipe.Contrasted,
    }[kind]
    return build(spec(backbone=recipe.Backbone(name="resnet8"), **fields), 5, KEY)


KINDS = ("classifier", "experts", "two_branch", "contrasted")
WITH_A_CHOICE = KINDS[:3]  # of the head

# ---------------------------------------------------------------------------------------------- all models


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_key_builds_the_same_bits_and_another_key_does_not(kind: str):
    first, second = small(kind).state_dict(), small(kind).state_dict()
    assert list(first) == list(second)
    assert all(torch.equal(first[name], second[name]) for name in first)
    spec = recipe.Classifier(backbone=recipe.Backbone(name="resnet8"))
    one, two = build(spec, 5, KEY), build(spec, 5, KEY.fold("other"))
    assert not torch.equal(one.head.weight, two.head.weight)
    assert not torch.equal(one.backbone.conv1.weight, two.backbone.conv1.weight)


@pytest.mark.parametrize("kind", KINDS)
def test_building_and_running_move_no_global_stream(kind: str):
    state = torch.get_rng_state()
    small(kind)(images())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("kind", WITH_A_CHOICE)
@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_every_parameter_is_backbone_or_head_and_gets_a_gradient(kind: str, head: str):
    made = small(kind, head=head)
    made(images()).scores.square().sum().backward()
    for name, parameter in made.named_parameters():
        assert name.startswith(("backbone.", "head.")), name
        assert parameter.grad is not None and parameter.grad.any(), name


@pytest.mark.parametrize("kind", KINDS)
def test_state_dict_round_trip_gives_equal_scores(kind: str):
    one, other = small(kind), build(small_spec(kind), 5, KEY.fold("other"))
    one(images())  # moves the running statistics
    other.load_state_dict(one.state_dict())
    with torch.no_grad():
        assert torch.equal(one.eval()(images()).scores, other.eval()(images()).scores)


def small_spec(kind: str) -> recipe.Model:
    backbone = recipe.Backbone(name="resnet8")
    match kind:
        case "classifier":
            return recipe.Classifier(backbone=backbone)
        case "experts":
            return recipe.Experts(backbone=backbone)
        case "contrasted":
            return recipe.Contrasted(backbone=backbone)
        case _:
            return recipe.TwoBranch(backbone=backbone)


# ---------------------------------------------------------------------------------------------- classifier


def test_a_classifier_is_its_head_over_its_backbone():
    made = small("classifier", head="cosine").eval()
    with torch.no_grad():
        output = made(images())
        assert torch.equal(output.features, made.backbone(images()))
        assert torch.equal(output.scores, made.head(output.features))
    assert output.scores.shape == (4, 5) and output.features.shape == (4, 64)
    assert output.scores.abs().max() <= 1


def test_resnet32_with_a_ten_class_cosine_head_has_464144_parameters():
    assert size(build(recipe.Classifier(), 10, KEY)) == 464_144


def test_the_head_named_is_the_head_built():
    assert isinstance(small("classifier", head="cosine").head, heads.Cosine)
    linear = small("classifier", head="linear").head
    assert isinstance(linear, heads.Linear) and linear.bias is not None


def test_the_head_is_independent_of_the_backbone():
    """A stage that restarts the head, or a wider backbone, must not move the other's random numbers."""
    one = build(recipe.Classifier(backbone=recipe.Backbone(name="resnet8")), 5, KEY)
    other = build(recipe.Classifier(backbone=recipe.Backbone(name="resnet20")), 5, KEY)
    assert torch.equal(one.head.weight, other.head.weight)


def test_identity_mix_changes_nothing_and_a_mix_mixes_features_smoothly():
    made = small("classifier").eval()
    with torch.no_grad():
        plain = made(images())
        assert torch.equal(made(images(), lambda maps: maps).scores, plain.scores)
        mixed = made(images(), lambda maps: 0.5 * maps + 0.5 * maps.flip(0))
        assert not torch.allclose(mixed.features, plain.features, atol=1e-4)
        assert torch.allclose(mixed.features, mixed.features.flip(0), atol=1e-5)


# ------------------------------------------------------------------------------------------------- experts


@pytest.mark.parametrize("reduced, expected", [(False, 1_344_784), (True, 770_896)])
def test_three_experts_over_resnet32_have_the_published_size(reduced: bool, expected: int):
    assert size(build(recipe.Experts(count=3, reduced=reduced), 10, KEY)) == expected


def test_reduced_experts_are_24_and_48_wide():
    made = build(recipe.Experts(reduced=True), 10, KEY).backbone
    assert made.num_features == 48
    assert made.shared.conv1.out_channels == 16
    assert {branch.layer2[0].conv1.out_channels for branch in made.branches} == {24}


def test_experts_share_stem_and_layer1_on_cifar():
    names = {name for name, _ in small("experts", count=2).backbone.named_parameters()}
    assert all(
        name.startswith(("shared.conv1", "shared.bn1", "shared.layer1")) for name in names if "shared" in name
    )
    assert {name.split(".")[2] for name in names if name.startswith("branches")} == {"layer2", "layer3"}


def test_experts_share_up_to_layer2_on_imagenet_networks():
    made = backbones.experts("resnet18", 2, reduced=True, generator=seeded())
    shared = {name.split(".")[1] for name, _ in made.named_parameters() if name.startswith("shared")}
    own = {name.split(".")[2] for name, _ in made.named_parameters() if name.startswith("branches")}
    assert shared == {"conv1", "bn1", "layer1", "layer2"} and own == {"layer3", "layer4"}
    assert made.branches[0].layer3[0].conv1.out_channels == 192
    assert made.branches[0].layer4[0].conv1.out_channels == made.num_features == 384


def test_places_experts_share_the_trunk_and_own_a_block_each():
    made = backbones.experts("places_resnet152", 2, generator=seeded())
    assert {name.split(".")[0] for name, _ in made.named_parameters()} == {"branches"}
    assert size(made) == 2 * 4_462_592
    assert made.eval()(images(1, 32)).shape == (1, 2, 2048)


def test_expert_scores_are_each_experts_own():
    made = small("experts", count=3).eval()
    with torch.no_grad():
        output = made(images())
        for expert in range(3):
            features = made.backbone.only(images(), expert)
            assert torch.equal(output.features[:, expert], features)
            assert torch.equal(output.scores[:, expert], made.head.each[expert](features))
    assert output.scores.shape == (4, 3, 5) and output.features.shape == (4, 3, 64)
    assert not torch.allclose(output.scores[:, 0], output.scores[:, 1], atol=1e-3)


def test_one_expert_computes_what_a_classifier_with_its_weights_computes():
    experts, classifier = small("experts", count=1), small("classifier")
    state = experts.state_dict()
    renamed = {
        name.replace("backbone.shared.", "backbone.")
        .replace("backbone.branches.0.", "backbone.")
        .replace("head.each.0.", "head."): tensor
        for name, tensor in state.items()
    }
    classifier.load_state_dict(renamed)  # strict: the two have the same tensors
    with torch.no_grad():
        one, other = experts.eval()(images()), classifier.eval()(images())
    assert torch.equal(one.scores[:, 0], other.scores)


def test_mix_acts_in_the_shared_part_for_all_experts():
    made = small("experts", count=2).eval()
    with torch.no_grad():
        swapped = made(images(), lambda maps: maps.flip(0)).features
        assert torch.allclose(swapped, made(images()).features.flip(0), atol=1e-5)


# ---------------------------------------------------------------------------------------------- two branch


def test_two_branches_own_the_last_block_and_share_the_rest():
    made = build(recipe.TwoBranch(), 10, KEY)
    block = 2 * (64 * 64 * 9) + 4 * 64
    assert size(made) == 463_504 + block + 128 * 10 + 10
    own = {
        name.split(".")[2] + "." + name.split(".")[3]
        for name, _ in made.backbone.branches.named_parameters("b")
    }
    assert own == {"layer3.4"}
    assert len(made.backbone.shared.layer3) == 4


def test_without_branches_apart_a_two_branch_network_is_the_plain_one():
    made, plain = small("two_branch").backbone.eval(), small("classifier").backbone.eval()
    state = {
        name.replace("shared.", "").replace("branches.0.", ""): tensor
        for name, tensor in made.state_dict().items()
        if not name.startswith("branches.1.")
    }
    plain.load_state_dict(state)
    with torch.no_grad():
        assert torch.equal(made(images())[:, 0], plain(images()))


def test_at_test_time_the_head_gets_both_features_of_the_image():
    made = small("two_branch").eval()
    with torch.no_grad():
        output = made(images())
        expected = torch.cat([made.backbone.only(images(), 0), made.backbone.only(images(), 1)], dim=1)
        assert torch.equal(output.features, expected)
        assert torch.equal(output.scores, made.head(expected))
    assert output.scores.shape == (4, 5) and output.features.shape == (4, 128)


@pytest.mark.parametrize("weight, silent", [(1.0, slice(64, 128)), (0.0, slice(0, 64))])
def test_at_either_end_of_alpha_one_branch_is_silent(weight: float, silent: slice):
    made = small("two_branch").eval()
    with torch.no_grad():
        features = made(images(), images(seed=8), weight).features
    assert not features[:, silent].any()
    assert features.any()


def test_in_training_each_batch_has_its_branch_and_weight():
    made = small("two_branch").eval()
    first, second = images(), images(seed=8)
    with torch.no_grad():
        output = made(first, second, torch.tensor(0.7))
        conventional, balancing = made.backbone.only(first, 0), made.backbone.only(second, 1)
        expected = torch.cat([1.4 * conventional, 0.6 * balancing], dim=1)
        assert torch.allclose(output.features, expected, atol=1e-6)


def test_batches_of_unequal_shape_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        small("two_branch")(images(4), images(3))


def test_each_batch_moves_the_trunks_running_mean_in_turn():
    made = small("two_branch")
    made(images(), images(seed=8))
    assert made.backbone.shared.bn1.num_batches_tracked == 2


# ---------------------------------------------------------------------------------------------- the specs


@pytest.mark.parametrize("kind", KINDS)
def test_specs_survive_json(kind: str):
    from pydantic import TypeAdapter

    adapter: TypeAdapter[recipe.Model] = TypeAdapter(recipe.Model)
    spec = small_spec(kind)
    assert adapter.validate_json(adapter.dump_json(spec)) == spec


def test_impossible_models_are_refused_in_one_line():
    for spec in (
        recipe.Classifier(backbone=recipe.Backbone(name="resnet")),
        recipe.Experts(backbone=recipe.Backbone(name="timm:resnet18")),
        recipe.TwoBranch(backbone=recipe.Backbone(name="timm:resnet18")),
        recipe.Experts(backbone=recipe.Backbone(name="places_resnet152"), reduced=True),
    ):
        with pytest.raises(UsageError) as raised:
            build(spec, 5, KEY)
        assert "\n" not in str(raised.value)


def test_output_has_names_and_routes_of_routers_alone():
    scores, features, routes, contrasted = models.Output(torch.zeros(1), torch.ones(1))
    assert not scores.any() and features.all() and routes is None and contrasted is None
    for kind in KINDS:
        assert small(kind)(images()).routes is None
