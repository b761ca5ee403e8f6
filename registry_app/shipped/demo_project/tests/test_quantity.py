"""Quantities are exact, and are written as a cook writes them."""

import unittest
from fractions import Fraction

from pantry.quantity import Quantity, parse_amount, show_amount


class QuantityTest(unittest.TestCase):
    def test_a_mixed_number_is_read_exactly(self) -> None:
        self.assertEqual(parse_amount("1 1/2 cup flour"), (Fraction(3, 2), "cup flour"))

    def test_a_decimal_is_read_exactly(self) -> None:
        self.assertEqual(parse_amount("0.1 g saffron")[0], Fraction(1, 10))

    def test_three_tenths_are_three_tenths(self) -> None:
        tenth, fifth = (Quantity(parse_amount(text)[0], "g") for text in ("1/10", "1/5"))
        self.assertEqual(tenth + fifth, Quantity(Fraction(3, 10), "g"))

    def test_amounts_are_written_as_a_cook_writes_them(self) -> None:
        self.assertEqual(show_amount(parse_amount("1/3")[0]), "1/3")
        self.assertEqual(show_amount(parse_amount("5/4")[0]), "1 1/4")
        self.assertEqual(show_amount(parse_amount("4/2")[0]), "2")

    def test_different_units_are_not_added(self) -> None:
        with self.assertRaises(ValueError):
            Quantity(Fraction(1), "cup") + Quantity(Fraction(1), "g")

    def test_text_without_an_amount_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            parse_amount("some salt")
