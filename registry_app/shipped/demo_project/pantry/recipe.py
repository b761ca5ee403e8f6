"""A recipe: title, servings, ingredients."""

from __future__ import annotations

from dataclasses import dataclass

from pantry.quantity import Quantity, parse_amount

UNITS = ("cup", "tbsp", "tsp", "g", "ml", "pinch")


@dataclass(frozen=True)
class Ingredient:
    quantity: Quantity
    name: str

    def __str__(self) -> str:
        return f"{self.quantity} {self.name}"


@dataclass(frozen=True)
class Recipe:
    title: str
    servings: int
    ingredients: tuple[Ingredient, ...]


def parse_ingredient(line: str) -> Ingredient:
    """Read ``1 1/2 cup flour`` or ``3 egg``. Raises ValueError."""
    amount, rest = parse_amount(line)
    unit, _, name = rest.partition(" ")
    if unit in UNITS and name:
        return Ingredient(Quantity(amount, unit), name.strip())
    if not rest:
        raise ValueError(f"no ingredient in {line!r}")
    return Ingredient(Quantity(amount), rest)


def parse_recipe(text: str) -> Recipe:
    """Read a recipe from its plain text. Raises ValueError."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) < 3 or not lines[1].startswith("serves "):
        raise ValueError("a recipe has a title, a line `serves N`, and ingredients")
    ingredients = tuple(parse_ingredient(line) for line in lines[2:])
    return Recipe(lines[0], int(lines[1].removeprefix("serves ")), ingredients)
