"""Recipes are read from their plain text."""

import unittest
from pathlib import Path

from pantry.recipe import parse_ingredient, parse_recipe

RECIPES = Path(__file__).parent.parent / "recipes"


class RecipeTest(unittest.TestCase):
    def test_an_ingredient_with_a_unit(self) -> None:
        self.assertEqual(str(parse_ingredient("1 1/2 cup brown sugar")), "1 1/2 cup brown sugar")

    def test_an_ingredient_that_is_counted(self) -> None:
        egg = parse_ingredient("3 egg")
        self.assertEqual((egg.quantity.unit, egg.name), ("", "egg"))

    def test_every_recipe_in_the_book_can_be_read(self) -> None:
        for file in sorted(RECIPES.glob("*.txt")):
            with self.subTest(file.name):
                self.assertGreater(
                    len(parse_recipe(file.read_text(encoding="utf-8")).ingredients), 2
                )

    def test_a_recipe_without_servings_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            parse_recipe("Toast\n1 slice bread\n1 tsp butter\n")
