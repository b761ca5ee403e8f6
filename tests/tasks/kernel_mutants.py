"""Small wrong versions of the kernel, one at a time. As a pytest plugin: put the one in MUTANT in its place."""

import ast
import copy
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNEL = ROOT / "tasks_app" / "kernel"
OTHER_WORDS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
SAYS_NOTHING = ("NOTHING", "''")


@dataclass(frozen=True, slots=True)
class Mutant:
    """``words`` name the line and what was changed; ``source`` is the whole module."""

    words: str
    source: str


def mutants(module: str) -> Iterator[Mutant]:
    """Give every wrong version of ``kernel/<module>.py``: another comparison, a lost condition, a lost word."""
    tree = ast.parse((KERNEL / f"{module}.py").read_text())
    for node in ast.walk(tree):
        for place, wrong, words in _wrongs(node):
            right = getattr(place[0], place[1])
            setattr(place[0], place[1], wrong)
            yield Mutant(f"{module}:{getattr(node, 'lineno', 0)} {words}", ast.unparse(ast.fix_missing_locations(tree)))
            setattr(place[0], place[1], right)


Wrong = tuple[tuple[ast.AST, str], object, str]


def _wrongs(node: ast.AST) -> Iterator[Wrong]:
    """Give (where, what to put there, words) for everything that can be wrong about one node."""
    match node:
        case ast.Compare(ops=[op]):
            for word in OTHER_WORDS[type(op)]:
                yield (node, "ops"), [word()], f"{ast.unparse(node)}: {word.__name__}"
        case ast.BoolOp():
            yield from _wrong_conditions(node)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            yield (node, "op"), ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), ast.unparse(node)
        case ast.Return(value=value) if value is not None and ast.unparse(value) not in SAYS_NOTHING:
            yield (node, "value"), ast.Name("NOTHING", ast.Load()), f"no {ast.unparse(node)}"
        case ast.IfExp():
            yield (node, "test"), ast.Constant(True), f"always {ast.unparse(node)}"
            yield (node, "test"), ast.Constant(False), f"never {ast.unparse(node)}"
        case ast.Call() if ast.unparse(node.func) != "dataclass":
            yield from _wrong_calls(node)
        case ast.UnaryOp(op=ast.Not()):
            yield (node, "operand"), ast.UnaryOp(ast.Not(), node.operand), f"lost {ast.unparse(node)}"


def _wrong_conditions(node: ast.BoolOp) -> Iterator[Wrong]:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield (node, "op"), other, f"{ast.unparse(node)}: {type(other).__name__}"
    for lost in node.values:
        rest = [value for value in node.values if value is not lost]
        yield (node, "values"), rest, f"{ast.unparse(node)} without {ast.unparse(lost)}"


def _wrong_calls(node: ast.Call) -> Iterator[Wrong]:
    for lost in node.keywords:
        rest = [keyword for keyword in node.keywords if keyword is not lost]
        yield (node, "keywords"), rest, f"{ast.unparse(node)} without {lost.arg}"
    if isinstance(node.func, ast.Attribute) and node.func.attr == "and_then":
        yield (node, "args"), [ast.Name("NOTHING", ast.Load())], f"only the first of {ast.unparse(node)}"
        nothing = copy.copy(node.func)
        nothing.value = ast.Name("NOTHING", ast.Load())
        yield (node, "func"), nothing, f"only the second of {ast.unparse(node)}"


def overlay(folder: Path, module: str, mutant: Mutant) -> Path:
    """Make a kernel that is wrong in one place, in ``folder``, for the plugin to use; give the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(KERNEL, folder / "kernel", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "kernel" / f"{module}.py").write_text(mutant.source)
    return folder


if "MUTANT" in os.environ:
    import tasks_app

    tasks_app.__path__.insert(0, os.environ["MUTANT"])
