"""`longtail features`: what the backbone makes of every image, for the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def features(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1.")] = None,
) -> None:
    """Write the features of all images, for the figures.

    A run that came without sample images, as from a repository, gets those of its page as well.
    """
    from longtail.run.escape import shown
    from longtail.run.folder import RunFolder

    RunFolder.open(run)  # a wrong folder is refused before torch is loaded
    from longtail.engine.features import features as computed

    print(f"written to {shown(computed(run, device=device))}")
