"""Read the code for every stable word that an error, a failure or a refusal can carry."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("sandbox_supervisor", "sandbox_providers", "tasks_app", "workspaces_app", "policy_app", "registry_app")
# Whatever is called one of these is given a code as a plain text among its arguments.
CALLED = frozenset(
    {
        "Broken", "BundleRefused", "ControlRefused", "Failed", "Finding", "GitFailed", "IdentityMismatch",
        "InputProblem", "InvalidSpec", "Judgement", "PermissionDenied", "Problem", "PushRefused", "Refusal", "Refused",
        "RemoteProblem", "RunnerRefused", "Shortfall", "SpecConflict", "Throttled", "Unavailable", "Unbriefable",
        "UrlRefused", "_Meaning", "_fail", "_failure", "_find", "_whole", "failed", "fatal", "problem",
    }
)  # fmt: skip
ASSIGNED = frozenset({"code", "default_code"})
TABLES = frozenset({"CODES", "TIMEOUTS", "_REFUSALS", "_STOPS", "_WORDS"})
KERNEL = "tasks_app/kernel"  # its words are the members of FailureCode, and the sources of its verdicts
NOT_CODES = frozenset({"code", "mappings", "self"})
_WORD = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_MANY_WORDS = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")


def stated() -> dict[str, set[str]]:
    """Give every code with the modules that state it."""
    found: dict[str, set[str]] = {}
    for room in ROOMS:
        for module in sorted((ROOT / room).rglob("*.py")):
            name = str(module.relative_to(ROOT))
            if not name.startswith(KERNEL):
                for code in _codes(ast.parse(module.read_text(encoding="utf-8"))):
                    found.setdefault(code, set()).add(name)
    return found


def _codes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            names = {getattr(target, "id", "") for target in targets}
            if names & ASSIGNED:
                yield from _plain([node.value])
            elif names & TABLES:
                yield from (word for word in _texts(node.value) if _MANY_WORDS.fullmatch(word))
        elif isinstance(node, ast.List):
            yield from (word for word in _plain(node.elts[:1]) if word.startswith("yaml_"))


def _of_call(call: ast.Call) -> Iterator[str]:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    yield from _plain([keyword.value for keyword in call.keywords if keyword.arg == "code"])
    if called in CALLED:
        yield from _plain(call.args)


def _plain(values: list[ast.expr]) -> Iterator[str]:
    """Give the words that the expressions are, or may be."""
    for value in values:
        several = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        several = list(value.values) if isinstance(value, ast.BoolOp) else several
        for one in several:
            word = one.value if isinstance(one, ast.Constant) else None
            if isinstance(word, str) and _WORD.fullmatch(word) and word not in NOT_CODES:
                yield word


def _texts(value: ast.expr) -> Iterator[str]:
    for one in ast.walk(value):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value
