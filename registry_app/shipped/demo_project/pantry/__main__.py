"""``python -m pantry show FILE``: print a recipe."""

import argparse
from pathlib import Path

from pantry.recipe import parse_recipe


def main() -> None:
    parser = argparse.ArgumentParser(prog="pantry")
    parser.add_argument("command", choices=["show"])
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    recipe = parse_recipe(arguments.file.read_text(encoding="utf-8"))
    print(f"{recipe.title}, serves {recipe.servings}")
    for ingredient in recipe.ingredients:
        print(f"  {ingredient}")


if __name__ == "__main__":
    main()
