"""Recipes as plain text, quantities as exact fractions."""
