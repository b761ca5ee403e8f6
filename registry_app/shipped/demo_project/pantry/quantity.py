"""An amount of something: an exact number and, for most things, a unit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_NUMBER = re.compile(r"(?:(\d+)\s+)?(\d+)/(\d+)|(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Quantity:
    """``Quantity(Fraction(3, 2), "cup")``; the unit is empty for things that are counted."""

    amount: Fraction
    unit: str = ""

    def __add__(self, other: Quantity) -> Quantity:
        if self.unit != other.unit:
            raise ValueError(f"cannot add {other.unit or 'pieces'} to {self.unit or 'pieces'}")
        return Quantity(self.amount + other.amount, self.unit)

    def __mul__(self, factor: Fraction | int) -> Quantity:
        return Quantity(self.amount * factor, self.unit)

    def __str__(self) -> str:
        return f"{show_amount(self.amount)} {self.unit}".strip()


def parse_amount(text: str) -> tuple[Fraction, str]:
    """Read the number at the start of ``text``; give it and the rest. Raises ValueError."""
    match = _NUMBER.match(text.strip())
    if match is None:
        raise ValueError(f"no amount in {text!r}")
    whole, top, bottom, decimal = match.groups()
    if decimal is not None:
        amount = Fraction(decimal)
    else:
        amount = Fraction(int(whole or 0)) + Fraction(int(top), int(bottom))
    return amount, text.strip()[match.end() :].strip()


def show_amount(amount: Fraction) -> str:
    """Write a number as a cook does: ``1 1/2``, never ``1.5``."""
    whole, rest = divmod(amount, 1)
    if rest == 0:
        return str(whole)
    return f"{whole} {rest}" if whole else str(rest)
