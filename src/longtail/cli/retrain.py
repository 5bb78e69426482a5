"""`longtail retrain`: another end for a finished run, over the first training that it already has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.failures import Session


def retrain(
    context: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="RUN", help="A finished run folder; its first training is kept.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE...",
            help="technique=crt, crt_decoupling, lws, lws_decoupling, tau_norm, ncm, disalign, mislas, "
            "logit_adjust or none; sampling=class_balanced and others; epochs=30.",
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="The new run folder. An interrupted run in it goes on.")],
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:1; an accelerator is used when there is one.")
    ] = None,
) -> None:
    """Re-train the classifier of a finished run."""
    from longtail.errors import UsageError
    from longtail.recipes import catalogue, retraining
    from longtail.run.folder import RunFolder

    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UsageError("retrain works in one process; start it without torchrun")
    first = RunFolder.open(source).recipe()  # a wrong folder or argument is refused before torch is loaded
    plan = retraining.plan(first, catalogue.call("retrain", retraining.Choices, settings or ()))

    from longtail.cli.display import watching
    from longtail.cli.train import summary
    from longtail.engine.retrain import retrain as run

    context.ensure_object(Session).folder = out
    with watching(out) as progress:
        run(
            source,
            plan.stages,
            out=out,
            provenance=plan.provenance,
            held_out=plan.held_out,
            device=device,
            progress=progress,
        )
    print(summary(out))
