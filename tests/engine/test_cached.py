"""Stage 2 over a backbone that stands still: what its steps run, and training on features that are kept."""

from __future__ import annotations

import pytest
import torch

from longtail import build
from longtail.engine import fit, frozen
from longtail.engine.cached import Views
from longtail.engine.distributed import World
from longtail.engine.feed import Feed
from longtail.engine.fit import train
from longtail.errors import Stopped
from longtail.keys import Key
from longtail.recipe import Cached, CutMix, ManifoldMixup, Mixup, Remix
from longtail.run import checkpoint

ALONE = World(torch.device("cpu"))


def head_of(run) -> torch.Tensor:
    return run.read_tensors("model.safetensors")["head.weight"]


def cached(tiny, views: int = 2, **second):
    recipe = tiny.gcl(ema=None)
    first, last = recipe.stages
    return tiny.replace(
        recipe, stages=(first, tiny.replace(last, **({"cached": Cached(views=views)} | second)))
    )


def test_steps_run_no_more_of_the_network_than_moves(tiny):
    recipe = tiny.gcl()
    first, second = recipe.stages
    model = build.model(recipe.model, 10, Key(0))
    assert frozen.network(recipe, first, model) is model
    still = frozen.network(recipe, second, model)
    assert isinstance(still.backbone, frozen.Folded) and still.head is model.head
    assert frozen.network(recipe, tiny.replace(second, mixing=ManifoldMixup()), model) is model
    assert frozen.network(recipe, tiny.replace(second, batchnorm="adapting"), model) is model
    over = frozen.network(recipe, tiny.replace(second, cached=Cached()), model)
    assert [name for name, _ in over.named_parameters()] == ["head.weight"]


def test_the_folded_backbone_trains_the_same_head(tiny, whole, tmp_path, monkeypatch):
    folded = head_of(whole(tiny.gcl()))
    monkeypatch.setattr(fit.frozen, "network", lambda recipe, stage, model: model)
    plain = head_of(train(tiny.gcl(), out=tmp_path / "plain"))
    torch.testing.assert_close(folded, plain, rtol=1e-4, atol=1e-5)


def test_without_augmentation_features_that_are_kept_train_the_same_head(tiny, tmp_path):
    """The order, the noise and the images are the same; only where the backbone runs differs."""
    heads = []
    for number, views in enumerate((None, 1, 3)):
        recipe = cached(tiny, cached=Cached(views=views) if views else None, mixing=None)
        recipe = tiny.replace(recipe, images=tiny.replace(recipe.images, crop=0))
        heads.append(head_of(train(recipe, out=tmp_path / str(number))))
    torch.testing.assert_close(heads[1], heads[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(heads[2], heads[0], rtol=1e-4, atol=1e-5)


def test_a_cached_stage_moves_the_head_alone_and_learns_from_its_views(tiny, tmp_path):
    recipe = cached(tiny)
    run = train(recipe, out=tmp_path / "two")
    before, after = (
        checkpoint.load(checkpoint.folder_of(run.checkpoints, step))[0]["model"] for step in (6, 12)
    )
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"head.weight"}
    other = train(cached(tiny, views=5), out=tmp_path / "five")
    assert not torch.equal(head_of(run), head_of(other))


@pytest.mark.parametrize("at", [6, 7, 9, 11, 12])
def test_an_interrupted_cached_stage_goes_on_to_the_same_bytes(tiny, tmp_path, at):
    recipe = cached(tiny)
    for how in ("stopped", "killed"):
        out = tmp_path / how
        with tiny.interrupted(at, how), pytest.raises((Stopped, tiny.Killed)):
            train(recipe, out=out)
        train(recipe, out=out)
    assert tiny.different(tmp_path / "stopped", tmp_path / "killed") == []
    assert tiny.different(tmp_path / "stopped", train(recipe, out=tmp_path / "whole")) == []


def test_views_are_different_images_drawn_from_the_key(tiny):
    recipe = cached(tiny, views=3)
    data = build.dataset(recipe.data)
    model = build.model(recipe.model, len(data.names), Key(0))
    feed = Feed(ALONE, recipe, data)
    made = []
    for key in (Key(1), Key(1), Key(2)):
        feed.entered(recipe.stages[1], model, key)
        assert feed.views is not None
        made.append(feed.views.features)
    assert made[0].shape == (3, len(data.train.targets), 64)
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])
    assert not torch.allclose(made[0][0], made[0][1])
    feed.entered(recipe.stages[0], model, Key(1))
    assert feed.views is None


def test_several_processes_and_later_starts_draw_the_same_views():
    features = torch.arange(60.0).view(3, 20, 1)
    views, order = Views(features, torch.arange(20)), torch.randperm(20, generator=torch.Generator())
    given = dict(key=Key(4), batch_size=4)
    whole = [batch.images.flatten() for batch in views.epoch(order, **given)]
    parts = [list(views.epoch(order, rank=rank, world_size=2, **given)) for rank in (0, 1)]
    for number, batch in enumerate(whole):
        assert torch.equal(torch.stack([part[number].images.flatten() for part in parts], 1).flatten(), batch)
    later = [batch.images.flatten() for batch in views.epoch(order, start=3, **given)]
    assert all(torch.equal(a, b) for a, b in zip(later, whole[3:], strict=True))
    drawn = torch.cat(whole)
    assert torch.equal(drawn % 20, order.float())  # the image asked for
    assert len((drawn // 20).unique()) == 3  # in any of its views


@pytest.mark.parametrize(
    "changes",
    [
        dict(trains=("backbone", "head")),
        dict(batchnorm="adapting"),
        dict(mixing=CutMix()),
        dict(mixing=ManifoldMixup()),
    ],
)
def test_what_features_cannot_do_is_refused(tiny, changes):
    with pytest.raises(ValueError, match="cached"):
        cached(tiny, **changes)


@pytest.mark.parametrize("mixing", [None, Mixup(), Remix()])
def test_features_are_mixed(tiny, tmp_path, mixing):
    assert train(cached(tiny, mixing=mixing), out=tmp_path / "run").is_finished
