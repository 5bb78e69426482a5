"""The loop (the paper's Algorithm 1): stages, epochs, steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import nn

from longtail import build
from longtail.data.splits import Dataset
from longtail.engine import environment, frozen, memory, posthoc, schedule, trainable
from longtail.engine.distributed import World, world
from longtail.engine.evaluate import evaluate, exact
from longtail.engine.feed import Feed
from longtail.engine.finish import finish
from longtail.engine.graphs import captured
from longtail.engine.progress import Progress, Silent
from longtail.engine.record import Record
from longtail.engine.signals import Interrupted, watch
from longtail.engine.step import Step
from longtail.engine.teacher import teachers
from longtail.keys import Key
from longtail.recipe import Recipe, Stage
from longtail.run import checkpoint
from longtail.run.folder import RunFolder


def train(
    recipe: Recipe, *, out: str | Path, device: str | None = None, progress: Progress | None = None
) -> RunFolder:
    """Trains `recipe` into the folder `out`, or goes on where an interrupted run of it stopped."""
    told = progress or Silent()
    with world(device) as here:
        folder = RunFolder(Path(out))
        with folder.held(main=here.is_main), environment.steady(here):
            with here.together():
                if here.is_main:
                    folder.create(recipe)
            if folder.is_finished:
                return folder
            data = build.dataset(recipe.data)
            model = begun(recipe, folder, len(data.names))
            environment.placed(model, recipe, here)
            feed = Feed(here, recipe, data)
            with watch(here.stop), Record(here, folder, recipe, data, model, here.stop, told) as record:
                try:
                    fit(here, recipe, data, model, record, feed)
                except Interrupted:
                    raise record.stopped() from None
                finish(here, recipe, data, model, record, feed.evaluation)
    return folder


def begun(recipe: Recipe, folder: RunFolder, classes: int) -> nn.Module:
    """The model before training. A checkpoint holds all its weights; the file they came from may be gone."""
    spec = recipe.model
    if spec.backbone.weights is not None and checkpoint.latest(folder.checkpoints) is not None:
        spec = replace(spec, backbone=replace(spec.backbone, weights=None))
    return build.model(spec, classes, Key(recipe.seed).fold("model"))


def fit(  # noqa: PLR0913  (the loop's own collaborators)
    here: World, recipe: Recipe, data: Dataset, model: nn.Module, record: Record, feed: Feed
) -> None:
    """Algorithm 1: for each stage, train what the stage names, on the stage's sampling, with its loss."""
    posthoc.require(recipe, data)
    memory.require(here, recipe)
    taught = teachers(recipe, data.names, here)
    done = record.place()
    record.began(sum(feed.steps(stage) * stage.epochs for stage in recipe.stages), done)
    for number, stage in enumerate(recipe.stages):
        key = Key(recipe.seed).fold(stage.name)
        if stage.posthoc is not None and number >= done.stage:
            refit(here, recipe, data, model, record, number, feed)
            continue
        trainable.reshape_head(model, stage, key)
        if number < done.stage:
            continue
        trainable.select(model, stage)
        model.to(here.device)
        if number > done.stage or not done.step:
            memory.begin(here, recipe, stage, data, model)
        loss = build.loss(stage.loss, data.counts).to(here.device)
        optimizer = build.optimizer(stage.optimizer, trainable.groups(model, stage), here.device)
        steps = feed.steps(stage)
        begin, epochs_done = record.restore(number, stage, optimizer, steps)
        feed.entered(stage, model, key)
        net = environment.compiled(recipe, here.wrap(frozen.network(recipe, stage, model)))
        teacher, held = taught.get(stage.teacher or ""), memory.of(model)
        update = captured(Step(here, recipe, stage, net, loss, optimizer, teacher, held))
        for epoch in range(epochs_done, stage.epochs):
            trainable.set_modes(model, stage)
            for step, mixture, batch, share in feed.epoch(
                stage, key, epoch, start=max(0, begin - epoch * steps)
            ):
                lr = stage.optimizer.lr * schedule.factor(
                    stage.schedule, step, steps=steps, epochs=stage.epochs
                )
                update.prepare(lr, key.fold("noise", step))
                value = update(mixture, share, progress=step / (steps * stage.epochs))
                record.stepped(step + 1, lr, value, batch, update.trouble)
            if due(recipe, stage, epoch + 1):
                seen = exact(recipe) if epoch + 1 == stage.epochs else recipe
                try:
                    with record.averaged():
                        measures = evaluate(here, seen, model, loss, feed.evaluation, data.counts)
                except Interrupted:
                    record.save()  # the epoch's steps; it will be evaluated when the run goes on
                    raise
                record.evaluated(epoch + 1, recipe.evaluation.split, measures)
            record.epoch_done(epoch + 1)


def refit(  # noqa: PLR0913  (the loop's own collaborators)
    here: World, recipe: Recipe, data: Dataset, model: nn.Module, record: Record, number: int, feed: Feed
) -> None:
    """A stage that trains nothing: it changes the head and is evaluated, and is done again on resuming."""
    stage = recipe.stages[number]
    record.entered(number, stage)
    record.chosen(posthoc.transform(here, recipe, stage, data, model))
    loss = build.loss(stage.loss, data.counts).to(here.device)
    measures = evaluate(here, exact(recipe), model, loss, feed.evaluation, data.counts)
    record.evaluated(0, recipe.evaluation.split, measures)


def due(recipe: Recipe, stage: Stage, epoch: int) -> bool:
    """Whether this epoch (1-based) is evaluated: every so many, and each of a stage's last."""
    return epoch % recipe.evaluation.every == 0 or epoch > stage.epochs - max(1, recipe.evaluation.last)
