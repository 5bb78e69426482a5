"""One self-contained page about one or several runs: no script, nothing from elsewhere, opens from disk."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from longtail.errors import UsageError
from longtail.report import sections
from longtail.report.reading import RunFiles, read
from longtail.report.summary import entries
from longtail.run import fsio

POLICY = "default-src 'none'; img-src data:; style-src 'sha256-"
LARGEST = 2_000_000  # bytes: a page that a phone opens and a mail carries


def write(runs: Sequence[Path], out: Path) -> None:
    """Write the page about these run folders to `out`."""
    if not runs:
        raise UsageError("a report needs at least one run folder")
    page = render([read(path) for path in runs])
    if out.parent != Path():
        fsio.make_folders(out.parent)
    fsio.write_file(out, page.encode("utf-8"))


def is_page(path: Path) -> bool:
    """Whether this file is a page that `write` made, of whatever version: it may be written anew."""
    return path.is_file() and str(escape(POLICY)).encode() in fsio.read_bytes(path)[:4096]


def render(runs: Sequence[RunFiles]) -> str:
    """The page as text. Details are left out, the least needed first, until it is small enough."""
    found, page = entries(runs), ""
    for thrift in sections.THRIFT:
        page = _filled(sections.page(found, thrift))
        if len(page.encode("utf-8")) < LARGEST:
            break
    return page


def _filled(content: dict[str, Any]) -> str:
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_template),
    )
    css = "\n" + _template("page.css")
    policy = f"{POLICY}{_sha256(css)}'; "
    policy += "base-uri 'none'; form-action 'none'"
    # Markup: our own style sheet, the one text that is not escaped; the policy allows these very bytes only.
    return environment.get_template("page.html.j2").render(**content, css=Markup(css), policy=policy)


def _template(name: str) -> str:
    return resources.files("longtail.report").joinpath("templates", name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
