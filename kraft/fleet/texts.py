"""Values of a run as texts with units, for tables, pages and the terminal; numbers from texts."""

from __future__ import annotations

import math

from kraft.errors import InvalidArgumentError

#: Begins the line of each step that ``kraft fleet`` writes to a standard error without a terminal.
STEP_PREFIX = "step "

_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "bytes": ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")),
    "ms": ((60_000, "min"), (1000, "s"), (1, "ms"), (1e-3, "us")),
    "s": ((3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")),
}


def value_text(value: float | None, unit: str, *, digits: int = 3) -> str:
    """Return a value with three digits and its unit: ``12.3 ms``, ``1.50 GiB``; ``-`` for None."""
    if value is None or not math.isfinite(value):
        return "-"
    if unit == "bytes/s":
        return f"{value_text(value, 'bytes', digits=digits)}/s"
    scales = _SCALES.get(unit)
    if value == 0 and scales is not None:
        return f"0 {unit}"
    if scales is None:
        short = {"events": "", "offset": "", "records": "", "ratio": ""}.get(unit, unit)
        return f"{number_text(value, digits=digits)} {short}".rstrip()
    scale, name = next((each for each in scales if abs(value) >= 0.9995 * each[0]), scales[-1])
    return f"{number_text(value / scale, digits=digits)} {name}"


def number_text(value: float, *, digits: int = 3) -> str:
    """Return a number with ``digits`` digits or all of a whole one: ``0.0123``, ``1,234``."""
    if value == 0:
        return "0"
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    if value == int(value) and abs(value) < 1e6:
        return f"{value:,.0f}"
    shown = float(f"{value:.{digits}g}")
    places = digits - 1 - math.floor(math.log10(abs(shown)))
    return f"{value:,.{max(places, 0)}f}"


def ratio_text(ratio: float | None) -> str:
    """Return a ratio as ``x1.25``; ``-`` for None."""
    return "-" if ratio is None else f"x{number_text(ratio)}"


def parse_numbers(text: str, what: str, low: int, high: int) -> tuple[int, ...]:
    """Return the numbers of ``100,1_000``, ascending; ``what`` names one of them in errors.

    Raises InvalidArgumentError for other texts, for numbers beyond ``low`` to ``high``, and for one
    that is named twice.
    """
    numbers = []
    for one in text.split(","):
        digits = one.strip().replace("_", "")
        if not digits.isascii() or not digits.isdigit() or not low <= int(digits) <= high:
            raise InvalidArgumentError(
                f"{one.strip()!r} is no {what}: give {low} to {high}, several separated by commas"
            )
        numbers.append(int(digits))
    if len(set(numbers)) < len(numbers):
        raise InvalidArgumentError(f"a {what} is named twice in {text!r}")
    return tuple(sorted(numbers))
