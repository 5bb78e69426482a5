"""What every loss promises, checked over every spec of `recipe.Loss` and every choice of its options.

A new spec is covered as soon as it is in the union; only an exception names a loss.
"""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy, normalize

from longtail import losses, recipe
from longtail.build.losses import loss as build
from longtail.losses import Mixed

COUNTS = torch.tensor([5000, 800, 120, 21, 1])
CLASSES, BATCH, EMPTY = len(COUNTS), 12, -100
# The numbers that a loss adds to plain cross-entropy; at 0 and equal counts nothing is left of it.
STRENGTHS = ("gamma", "margin", "tau", "strength", "focal", "head", "tail", "beta", "diversity")
STRENGTHS += ("weight", "mutual", "nested", "negative")


def _specs() -> Iterator[Any]:
    """Each loss with its defaults, then once for every other value of each of its options."""
    union = typing.get_args(recipe.Loss)[0]
    for kind in typing.get_args(union):
        yield kind()
        for name, annotation in typing.get_type_hints(kind).items():
            default = getattr(kind(), name)
            if typing.get_origin(annotation) is Literal:
                yield from (kind(**{name: v}) for v in typing.get_args(annotation) if v != default)
            elif isinstance(default, bool):
                yield kind(**{name: not default})


SPECS = list(_specs())
EVERY = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: repr(spec).split("longtail.recipe.")[-1][:90])
# The options of one loss share its code path under a compiler.
DEFAULTS = pytest.mark.parametrize(
    "spec", [kind() for kind in typing.get_args(typing.get_args(recipe.Loss)[0])], ids=lambda spec: spec.kind
)


def extras(loss: nn.Module, rows: int = BATCH, columns: int = CLASSES, experts: int = 2) -> dict[str, Any]:
    """What the loss takes besides scores and target, the same in every call: its noise, what it `needs`."""
    source = torch.Generator().manual_seed(4)
    offered: dict[str, Any] = {
        "noise": torch.randn(rows, columns, generator=source, dtype=torch.float64) / 3,
        "progress": 0.5,
        "norms": 1 + torch.rand(rows, generator=source, dtype=torch.float64),
        "teacher": torch.randn(rows, columns, generator=source, dtype=torch.float64),
        "distances": 4 * torch.rand(rows, columns, generator=source, dtype=torch.float64),
        "recalled": (  # of a memory with one empty place: no row for each sample
            torch.randn(4, columns, generator=source, dtype=torch.float64),
            torch.tensor([0, columns - 1, EMPTY, 1]),
        ),
        "routes": torch.randn(rows, experts - 1, generator=source, dtype=torch.float64),
    }
    rows_of_length_one = normalize(torch.randn(rows, columns, generator=source, dtype=torch.float64))
    offered["contrasted"] = rows_of_length_one
    takes = inspect.signature(loss.forward).parameters
    assert set(getattr(loss, "needs", ())) <= set(takes)
    return {name: value for name, value in offered.items() if name in takes}


def taken(given: dict[str, Any], chosen: Tensor) -> dict[str, Any]:
    """The extras of some samples."""
    return {name: value[chosen] if isinstance(value, Tensor) else value for name, value in given.items()}


OF_CLASS = ("noise", "teacher", "contrasted", "distances")  # with a column for each class


def renamed(given: dict[str, Any], order: Tensor) -> dict[str, Any]:
    """The extras after class `order[j]` has become class j."""
    columns = {name for name in OF_CLASS if name in given and given[name].shape[1] == CLASSES}
    other = {name: value[:, order] if name in columns else value for name, value in given.items()}
    if "recalled" in given:
        held, labels = given["recalled"]
        other["recalled"] = (
            held[:, order],
            torch.where(labels < 0, labels, order.argsort()[labels.clamp_min(0)]),
        )
    return other


def forgotten(given: dict[str, Any]) -> dict[str, Any]:
    """The extras without anything to remember."""
    if "recalled" not in given:
        return given
    held, labels = given["recalled"]
    return given | {"recalled": (held, torch.full_like(labels, EMPTY))}


def moved(given: Any, device: str) -> Any:
    """Every tensor of the extras on a device."""
    if isinstance(given, dict):
        return {name: moved(value, device) for name, value in given.items()}
    if isinstance(given, tuple):
        return tuple(moved(value, device) for value in given)
    return given.to(device) if isinstance(given, Tensor) else given


def shaped(spec: Any, scores: Tensor, experts: int = 2) -> Tensor:
    """[B, C] as it is, or [B, experts, C] for a loss of experts: the others see other images' scores."""
    if not hasattr(build(spec, COUNTS), "each") and not hasattr(spec, "base"):
        return scores
    return torch.stack([scores.roll(expert, 0) for expert in range(experts)], 1)


def bare(spec: Any) -> Any:
    """The spec with nothing added to cross-entropy, in the loss of each expert too."""
    fields: dict[str, Any] = {name: 0.0 for name in STRENGTHS if hasattr(spec, name)}
    if hasattr(spec, "base"):
        fields["base"] = bare(spec.base)
    return type(spec)(**fields)


@pytest.fixture
def one() -> Tensor:
    source = torch.Generator().manual_seed(1)
    return torch.rand(BATCH, CLASSES, generator=source, dtype=torch.float64) * 1.8 - 0.9


@pytest.fixture
def scores(spec: Any, one: Tensor) -> Tensor:
    return shaped(spec, one)


@pytest.fixture
def target() -> Tensor:
    return torch.arange(BATCH) % CLASSES


def test_every_public_loss_is_covered():
    public = {name for name in losses.__all__ if isinstance(getattr(losses, name), type)} - {"Mixed"}
    assert {type(build(spec, COUNTS)).__name__ for spec in SPECS} == public


@EVERY
def test_it_is_a_scalar_without_parameters_or_checkpoint_entries(spec, scores, target):
    loss = build(spec, COUNTS)
    made = loss(scores, target, **extras(loss))
    assert made.shape == () and made.dtype == torch.float64 and bool(torch.isfinite(made)) and made > 0
    assert list(loss.parameters()) == [] and loss.state_dict() == {}
    loss.load_state_dict(loss.state_dict())


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_loss_and_gradient_are_finite_at_any_cosine_and_any_count(spec, dtype):
    edges = torch.tensor([-1.0, -1 + 1e-8, 0.0, 1 - 1e-8, 1.0000005])
    for counts in (torch.ones(CLASSES).long(), torch.full((CLASSES,), 5000), COUNTS):
        loss = build(spec, counts)
        rolled = torch.stack([edges.roll(k) for k in range(CLASSES)]).to(dtype)
        mine = shaped(spec, rolled).requires_grad_()
        made = loss(mine, torch.arange(CLASSES), **extras(loss, CLASSES))
        made.backward()
        assert made.dtype == torch.float32 and bool(torch.isfinite(made))
        assert mine.grad is not None and bool(torch.isfinite(mine.grad).all())


@EVERY
def test_gradients_are_those_of_finite_differences(spec, one, target):
    loss, scores = build(spec, COUNTS), shaped(spec, one, experts=1)  # among several one is held still
    given = taken(extras(loss, experts=1), torch.arange(4))
    assert gradcheck(
        lambda mine: loss(mine, target[:4], **given), scores[:4].requires_grad_(), eps=1e-7, atol=1e-4
    )


@EVERY
def test_the_order_of_the_batch_does_not_matter(spec, scores, target):
    loss = build(spec, COUNTS)
    given, order = extras(loss), torch.arange(BATCH).flip(0)
    made = loss(scores[order], target[order], **taken(given, order))
    torch.testing.assert_close(made, loss(scores, target, **given))


@EVERY
def test_renaming_the_classes_changes_nothing(spec, scores, target):
    order = torch.tensor([3, 0, 4, 1, 2])
    loss, other = build(spec, COUNTS), build(spec, COUNTS[order])
    given = extras(loss)
    made = other(scores[..., order], order.argsort()[target], **renamed(given, order))
    torch.testing.assert_close(made, loss(scores, target, **given))


@EVERY
def test_equal_counts_prefer_no_class(spec, scores, target):
    loss = build(spec, torch.full((CLASSES,), 50))
    given = extras(loss)
    given |= {"noise": given["noise"][:, :1]} if "noise" in given else {}  # a draw that names no class
    given |= {"teacher": torch.zeros_like(given["teacher"])} if "teacher" in given else {}
    given |= {"distances": torch.full_like(given["distances"], 0.7)} if "distances" in given else {}
    given = forgotten(given)
    order = torch.tensor([3, 0, 4, 1, 2])
    made = loss(scores[..., order], order.argsort()[target], **renamed(given, order))
    torch.testing.assert_close(made, loss(scores, target, **given))


@EVERY
def test_with_nothing_added_it_is_the_cross_entropy_of_its_logits(spec, one, target):
    loss, scores = build(bare(spec), torch.full((CLASSES,), 50)), shaped(spec, one, experts=1)
    if "contrasted" in getattr(loss, "needs", ()) and not hasattr(spec, "strength"):
        pytest.skip("it compares images and has no cross-entropy to be left with")
    made = loss(scores, target, **extras(loss, experts=1))
    torch.testing.assert_close(made, cross_entropy(loss.logits(scores), target))


@EVERY
def test_evaluation_is_the_cross_entropy_of_its_logits(spec, scores, target):
    loss = build(spec, COUNTS).eval()
    expected = cross_entropy(loss.logits(scores), target)
    torch.testing.assert_close(loss(scores, target, **extras(loss)), expected)
    torch.testing.assert_close(loss(scores, target), expected)


@EVERY
def test_the_same_generator_state_gives_the_same_value(spec, scores, target):
    loss = build(spec, COUNTS)
    given = {name: value for name, value in extras(loss).items() if name != "noise"}
    first, second = (
        loss(scores, target, generator=torch.Generator().manual_seed(9), **given) for _ in range(2)
    )
    assert torch.equal(first, second)


@EVERY
def test_the_global_random_state_is_left_alone_when_a_generator_is_given(spec, scores, target):
    loss = build(spec, COUNTS)
    given = {name: value for name, value in extras(loss).items() if name != "noise"}
    before = torch.get_rng_state()
    loss(scores, target, generator=torch.Generator().manual_seed(9), **given)
    assert torch.equal(torch.get_rng_state(), before)


@EVERY
def test_copies_and_casts_keep_the_value(spec, scores, target):
    loss = build(spec, COUNTS)
    given = extras(loss)
    expected = loss(scores, target, **given)
    for other in (copy.deepcopy(loss), copy.deepcopy(loss).half(), copy.deepcopy(loss).bfloat16()):
        assert torch.equal(other(scores, target, **given), expected)
    moved = copy.deepcopy(loss).to("meta")
    assert all(buffer.device.type == "meta" for buffer in moved.buffers())


@EVERY
def test_float32_agrees_with_float64(spec, scores, target):
    loss = build(spec, COUNTS)
    mine = scores.requires_grad_()
    (exact,) = torch.autograd.grad(loss(mine, target, **extras(loss)), mine)
    single = scores.detach().float().requires_grad_()
    made = loss(single, target, **extras(loss))
    torch.testing.assert_close(made.double(), loss(mine, target, **extras(loss)), rtol=2e-5, atol=1e-6)
    (rounded,) = torch.autograd.grad(made, single)
    torch.testing.assert_close(rounded.double(), exact, rtol=1e-3, atol=1e-5)


@EVERY
def test_autocast_changes_no_more_than_the_cosines(spec, target):
    source = torch.Generator().manual_seed(2)
    features, anchors = (torch.randn(n, 16, generator=source) for n in (BATCH, CLASSES))
    loss = build(spec, COUNTS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cosine = shaped(spec, normalize(features) @ normalize(anchors).T)
        made = loss(cosine, target, **extras(loss))
    assert cosine.dtype == torch.bfloat16 and made.dtype == torch.float32
    torch.testing.assert_close(made, loss(cosine, target, **extras(loss)))


@EVERY
def test_an_ignored_sample_is_as_good_as_left_out(spec, scores, target):
    loss = build(spec, COUNTS)
    given = extras(loss)
    kept = torch.tensor([i for i in range(BATCH) if i not in (2, 7)])
    holes = target.clone()
    holes[[2, 7]] = -100
    mine = scores.requires_grad_()
    made = loss(mine, holes, **given)
    torch.testing.assert_close(made, loss(scores[kept], target[kept], **taken(given, kept)))
    (gradient,) = torch.autograd.grad(made, mine)
    assert bool((gradient[[2, 7]] == 0).all())
    nothing = loss(mine, torch.full_like(target, -100), **forgotten(given))
    assert float(nothing.detach()) == 0


@EVERY
def test_a_mixed_target_weighs_its_halves(spec, scores, target):
    if spec.kind == "hybrid_contrastive":
        pytest.skip(
            "its Mixed is a pair of batches, each for a part of the loss: tests/losses/test_contrastive.py"
        )
    fields = {"halves": "shared"} if hasattr(spec, "halves") else {}
    kind = {name: getattr(spec, name) for name in typing.get_type_hints(type(spec))}
    loss = build(type(spec)(**{**kind, **fields}), COUNTS)
    given, other = extras(loss), target.roll(1)
    first, second = loss(scores, target, **given), loss(scores, other, **given)
    torch.testing.assert_close(loss(scores, Mixed(target, other, 1.0), **given), first)
    for weight in (0.3, torch.tensor(0.3), torch.full((BATCH,), 0.3)):
        made = loss(scores, Mixed(target, other, weight), **given)
        torch.testing.assert_close(made, 0.3 * first + 0.7 * second, rtol=1e-6, atol=0)
        torch.testing.assert_close(
            loss(scores, Mixed(other, target, 1 - weight), **given), made, rtol=1e-6, atol=0
        )


@EVERY
def test_probabilities_are_taken_or_refused_by_name(spec, scores, target):
    loss = build(spec, COUNTS)
    given, other = extras(loss), target.roll(1)
    onehot = nn.functional.one_hot
    matrix = 0.3 * onehot(target, CLASSES).double() + 0.7 * onehot(other, CLASSES).double()
    try:
        made = loss(scores, matrix, **given)
    except TypeError as error:
        assert "Mixed" in str(error)
    else:
        shared = copy.deepcopy(loss)
        if hasattr(shared, "halves"):
            shared.halves = "shared"
        torch.testing.assert_close(made, shared(scores, Mixed(target, other, 0.3), **given))


@EVERY
def test_what_does_not_fit_is_an_error(spec, scores, target):
    loss = build(spec, COUNTS)
    given = extras(loss)
    for wrong in (target[:-1], target + 1, target - 1, Mixed(target, target + 1, 0.5)):
        with pytest.raises(ValueError):
            loss(scores, wrong, **given)
    with pytest.raises(TypeError, match="integers"):
        loss(scores, target > 2, **given)
    for kind in (target.tolist(), target.numpy(), (target, target, 0.5), Mixed(target, target.tolist(), 0.5)):
        with pytest.raises(TypeError, match="a target is a tensor of class indices"):
            loss(scores, kind, **given)
    with pytest.raises(ValueError, match="0, 1"):
        loss(scores, Mixed(target, target, 1.5), **given)
    with pytest.raises(ValueError, match="empty"):
        loss(scores[:0], target[:0], **taken(given, torch.arange(0)))
    if "counts" in inspect.signature(type(loss)).parameters:
        with pytest.raises(ValueError, match=rf"scores must have shape \[.*{CLASSES}\]"):
            loss(scores[..., :-1], target.clamp(max=3), **given)


@DEFAULTS
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_a_compiler_changes_nothing(spec, scores, target):
    loss = build(spec, COUNTS)
    given, mixed = extras(loss), Mixed(target, target.roll(1), 0.3)
    torch.compiler.reset()
    compiled = torch.compile(copy.deepcopy(loss), backend="eager", fullgraph=True)
    results = []
    for module in (loss, compiled):
        mine = scores.detach().clone().requires_grad_()
        made = module(mine, mixed, **given)
        made.backward()
        results.append((made.detach(), mine.grad))
    torch.testing.assert_close(results[0], results[1])


@EVERY
def test_no_value_is_read_on_an_accelerator(spec):
    # A meta tensor has no values: whatever would make a host wait for its device raises here, and so does a
    # tensor left behind on the CPU.
    loss = build(spec, COUNTS).to("meta")
    given = moved(extras(loss), "meta")
    given.pop("noise", None)  # the loss draws its own
    mine = shaped(spec, torch.empty(BATCH, CLASSES, device="meta")).requires_grad_()
    index = torch.zeros(BATCH, dtype=torch.long, device="meta")
    for asked in (index, Mixed(index, index, 0.3)):
        made = loss(mine, asked, **given)
        made.backward()
        assert made.device.type == "meta" and mine.grad is not None


@EVERY
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_accelerator_gives_the_values_of_the_cpu(spec, scores, target):
    results = []
    for device in ("cpu", "cuda"):
        loss = build(spec, COUNTS).to(device)
        given = moved(extras(loss), device)
        mine = scores.float().to(device).requires_grad_()
        index = target.to(device)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error" if device == "cuda" else "default")
        try:
            made = loss(mine, index, **given)
            made.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        results.append((made.detach().cpu(), mine.grad.cpu()))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)
