"""Plain aligned columns and terminal words: the same text on a terminal, in a pipe and in a log."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.run.escape import terminal


def aligned(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The first column to the left, the others to the right; every cell is made safe for a terminal.

    Example:
        >>> print(aligned(["stage", "few"], [["representation", 1.5], ["classifier", 12.25]]))
        stage            few
        representation   1.5
        classifier      12.2
    """
    cells = [[_cell(value) for value in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths))
        )
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def facts(rows: Sequence[tuple[str, object]]) -> str:
    """`name  value` lines, the values below each other.

    Example:
        >>> print(facts([("classes", 10), ("ratio", "100")]))
        classes  10
        ratio    100
    """
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {_cell(value)}" for name, value in rows)


def number(value: object) -> str:
    """A measure with one decimal; a dash for a group that has no classes."""
    return f"{value:.1f}" if isinstance(value, int | float) and value == value else "-"


def quantity(value: float) -> str:
    """A ratio as people write it: 100, 48.3.

    Example:
        >>> quantity(100.0), quantity(48.333)
        ('100', '48.3')
    """
    return f"{value:,.0f}" if value == round(value) or value >= 1000 else f"{value:.1f}"


def duration(seconds: float) -> str:
    """
    Example:
        >>> duration(9.6), duration(170), duration(8000), duration(400000)
        ('10 s', '3 min', '2 h 13 min', '4 d 15 h')
    """
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _cell(value: object) -> str:
    return number(value) if isinstance(value, float) else terminal(str(value))
