"""Render templates and check schemas where a hostile one can only waste five seconds: in a process of their own.

Run as ``python -m sandbox_supervisor.attempts.confined``: one JSON question on standard input, one JSON answer on
standard output. ``ask`` is the supervisor's end, which therefore loads neither Jinja2 nor jsonschema.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SECONDS = 5
PATIENCE = 30.0
MEMORY = 512 * 1024 * 1024
RENDERED_LIMIT = 256 * 1024
PROBLEMS_LIMIT = 20
ROOT = Path(__file__).resolve().parents[2]


class Unfit(Exception):  # a template or value that does not fit
    """A template that cannot be rendered. ``where`` names it."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where
        self.message = message


async def render(templates: Mapping[str, str], context: Mapping[str, Any]) -> dict[str, str]:
    """Render every template over ``context``. Plain text needs no process. Raises Unfit."""
    dynamic = {name: text for name, text in templates.items() if "{{" in text or "{%" in text or "{#" in text}
    answer = await ask({"templates": dynamic, "context": context}) if dynamic else {"rendered": {}}
    if "unfit" in answer:
        raise Unfit(answer["where"], answer["unfit"])
    return {**templates, **answer["rendered"]}


async def problems(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Say how ``value`` violates the JSON Schema; empty when it does not."""
    answer = await ask({"schema": schema, "value": value})
    return [str(problem) for problem in answer["problems"]] if "problems" in answer else [str(answer["unfit"])]


async def ask(question: Mapping[str, Any]) -> dict[str, Any]:
    """Put one question to a fresh process; an answer with ``unfit`` says why there is none."""
    import asyncio  # here, since the process that answers loads this module, too

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-s", "-B", "-m", __name__,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)},
        cwd="/",
        start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE):
            output, _ = await process.communicate(json.dumps(question).encode())
        return dict(json.loads(output))
    except (TimeoutError, ValueError):
        return {"unfit": f"took more than {SECONDS} s or {MEMORY} bytes", "where": ""}
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _finalize(value: Any) -> Any:
    """Show structures as JSON rather than in Python's spelling."""
    return json.dumps(value, ensure_ascii=False) if value is None or isinstance(value, dict | list | bool) else value


def _render(templates: dict[str, str], context: dict[str, Any]) -> dict[str, Any]:
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=False,  # prompts and shell text, never markup
        keep_trailing_newline=True,
        finalize=_finalize,
    )
    rendered = {}
    for name, text in templates.items():
        try:
            parts, size = [], 0
            for part in environment.from_string(text).generate(**context):
                parts.append(part)
                size += len(part)
                if size > RENDERED_LIMIT:
                    return {"unfit": f"gives more than {RENDERED_LIMIT} characters", "where": name}
        except (TemplateError, TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
            return {"unfit": str(error)[:500], "where": name}
        rendered[name] = "".join(parts)
    return {"rendered": rendered}


def _problems(schema: dict[str, Any], value: Any) -> dict[str, Any]:
    from itertools import islice

    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
    from referencing.exceptions import Unresolvable

    try:
        Draft202012Validator.check_schema(schema)
        found = islice(Draft202012Validator(schema, registry=REGISTRY).iter_errors(value), PROBLEMS_LIMIT)
        return {"problems": [f"{problem.json_path}: {problem.message[:300]}" for problem in found]}
    except (SchemaError, Unresolvable) as error:
        return {"unfit": f"the schema itself is not valid: {str(error)[:300]}", "where": "schema"}


def main() -> None:
    """Answer the one question within fixed bounds of time and memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(int(PATIENCE))
    question = json.load(sys.stdin)
    try:
        if "templates" in question:
            answer = _render(question["templates"], question["context"])
        else:
            answer = _problems(question["schema"], question["value"])
    except (MemoryError, RecursionError) as error:
        answer = {"unfit": type(error).__name__, "where": ""}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
