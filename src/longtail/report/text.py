"""Names, paths and numbers made fit for print. Names come from other people's files: none is trusted."""

from __future__ import annotations

import re

from longtail.run.escape import terminal

_NOT_XML = re.compile("[\ufffe\uffff]")  # the only characters left that an SVG file may not hold


def label(value: object, limit: int = 60) -> str:
    r"""One printable line of at most `limit` characters, without control or reordering marks.

    >>> label("cat\x1b]0;x"), label("\udcff"), label("a" * 70, 5), label("")
    ('cat]0;x', '\\xff', 'aaaa…', '(empty)')
    """
    raw = str(value)
    head = raw[: 4 * limit]  # an escaped byte is four characters long
    shown = " ".join(_NOT_XML.sub("", terminal(re.sub(r"\s", " ", head))).split()) or "(empty)"
    return shown if len(shown) <= limit and len(raw) <= 4 * limit else shown[: limit - 1] + "…"


def short(value: object, limit: int) -> str:
    """A label without its middle: names of one beginning, as those of species, differ at the end.

    >>> short("Great_crested_Grebe", 14), short("Great_crested_Tern", 14), short("cat", 14)
    ('Great_c…_Grebe', 'Great_c…d_Tern', 'cat')
    """
    whole = label(value, 200)
    after = (limit - 1) // 2
    return whole if len(whole) <= limit else f"{whole[: limit - 1 - after]}…{whole[len(whole) - after :]}"


def percent(value: object, digits: int = 1) -> str:
    """A percentage, or a dash for a group without classes.

    >>> percent(41.27), percent(None), percent(float("nan"))
    ('41.3', '–', '–')
    """
    return f"{value:.{digits}f}" if isinstance(value, (int, float)) and value == value else "–"


def plural(number: int, noun: str) -> str:
    """
    >>> plural(1, "class"), plural(1200, "image")
    ('1 class', '1,200 images')
    """
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"
