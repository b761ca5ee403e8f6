"""Read the arguments of ``./caisson`` and call the command; one place turns problems into words and exit statuses."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from config import env, state
from config.commands import result
from config.commands.processes import Layout, RedisMissing
from config.commands.product import ProductProblem, running
from config.commands.terminal import tell

DEFAULT_PORT = 8765


class Exit:
    """Exit statuses, as the API reference names them."""

    OK = 0
    TASK_FAILED = 1
    USAGE = 2
    NOT_SIGNED_IN = 3
    NOT_FOUND = 4
    GAP = 5
    CONFLICT = 6
    UNREACHABLE = 7
    INTERRUPTED = 130


def main(checkout: Path, arguments: list[str]) -> int:
    """Run one command inside the project's environment and give its exit status."""
    if arguments[0] == "test":
        return _test(checkout, arguments[1:])
    os.umask(0o077)  # what is made below the state directory is nobody else's
    try:
        options = _parser().parse_args(arguments)
    except SystemExit:  # argparse has said why
        if result.wanted(arguments) and not {"-h", "--help"} & set(arguments):
            result.tell(result.nothing())
        raise
    options.result = result.nothing()
    try:
        return _guarded(checkout, options)
    finally:
        if getattr(options, "json", False):
            result.tell(options.result)


def _test(checkout: Path, arguments: list[str]) -> int:
    from config.commands import suite

    try:
        return suite.main(checkout, arguments)
    except KeyboardInterrupt:
        tell("caisson: interrupted")
        return Exit.INTERRUPTED


def _guarded(checkout: Path, options: argparse.Namespace) -> int:
    layout = None
    try:
        layout = prepare_layout(checkout, getattr(options, "port", None))
        call: Callable[[Layout, argparse.Namespace], int] = options.call
        return call(layout, options)
    except (env.EnvironmentProblem, ProductProblem, RedisMissing) as problem:
        tell(f"caisson: {problem}")
    except OSError as error:
        tell(f"caisson: {error.filename or 'the system'}: {error.strerror or error}. ./caisson doctor says more.")
    except KeyboardInterrupt:
        goes_on = "; the product and its tasks go on (./caisson stop ends the product)"
        tell(f"\ncaisson: interrupted{goes_on if layout and running(layout) else ''}")
        return Exit.INTERRUPTED
    return Exit.TASK_FAILED


def prepare_layout(checkout: Path, port: int | None) -> Layout:
    """Make the state directory and name it to Django's settings. Raises ProductProblem when it cannot be written.

    The port is the one asked for, else that of the product that runs already, else CAISSON_PORT, else 8765.
    """
    environment = env.Environment()
    folder = environment.get(env.STATE_DIR, checkout / ".caisson")
    _check_paths(checkout, folder)
    try:
        state.prepare(folder)
        run = state.run_folder(folder)
        (run / ".writable").touch()
    except OSError as error:
        raise ProductProblem(
            f"the state directory {folder} cannot be used: {error.strerror or error}. "
            "Make it writable for this user, or set CAISSON_STATE_DIR to a folder that is."
        ) from None
    layout = Layout(
        checkout=checkout,
        state=folder,
        run=run,
        port=port or environment.get(env.PORT, DEFAULT_PORT),
        threads=environment.get(env.WORKER_THREADS, 8),
    )
    found = running(layout)
    if found and found.port != layout.port:
        layout = Layout(checkout=checkout, state=folder, run=run, port=found.port, threads=layout.threads)
    os.environ["CAISSON_STATE_DIR"] = str(folder)
    os.environ["CAISSON_PORT"] = str(layout.port)
    return layout


def _check_paths(*folders: Path) -> None:
    """Refuse what the process manager's configuration cannot hold: it takes the rest of such a path for a comment."""
    for folder in folders:
        if any(sign in str(folder) for sign in (" #", " ;", "\n", "\r")):
            raise ProductProblem(
                f"the path {str(folder)!r} cannot be used: it holds a line end, or '#' or ';' after a space. "
                "Move the checkout, or set CAISSON_STATE_DIR to another folder."
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./caisson", description="A control plane for agent work: one task, one sandbox."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = _command(commands, "up", "up", "start the product and print how to sign in; Ctrl-C stops it, sandboxes stay")
    up.add_argument("--port", type=_port, help="port of the console on 127.0.0.1 (default: CAISSON_PORT, else 8765)")
    up.add_argument(
        "--demo", action="store_true", help="also start the demo task; you answer its sign-off in the browser"
    )
    run = _command(commands, "run", "work.run", "start a task on a repository and follow it to its end")
    run.add_argument("repository", metavar="REPO", help="path or URL of a Git repository")
    run.add_argument("brief", metavar="BRIEF", help="what is asked for")
    run.add_argument("--flow", default="tidy", help="name of a flow in the registry, or a flow file (default: tidy)")
    run.add_argument("--remote", metavar="URL", help="where the task branch is pushed (default: REPO itself)")
    run.add_argument("--json", action="store_true", help="last line of standard output: one JSON object")
    demo = _command(commands, "demo", "work.demo", "the demo flow on a small project made for it, without a person")
    demo.add_argument("--json", action="store_true", help="last line of standard output: one JSON object")
    confirm = _command(
        commands, "confirm-database", "confirm.main", "end safe mode: a restored database is the one to go on with"
    )
    confirm.add_argument("--yes", action="store_true", help="do not ask")
    _command(commands, "doctor", "doctor.main", "say what is wrong and how to fix it")
    _command(commands, "stop", "up.stop", "stop the product; sandboxes stay")
    reset = _command(
        commands, "reset", "reset.main", "delete every task by the ordinary path, then remove the state directory"
    )
    reset.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, target: str, words: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=words, description=words)
    parser.set_defaults(call=_later(target))
    return parser


def _later(target: str) -> Callable[[Layout, argparse.Namespace], int]:
    """Import a command's module only when it is called: most of them load Django."""

    def call(layout: Layout, options: argparse.Namespace) -> int:
        from importlib import import_module

        module, _, function = target.partition(".")
        found = getattr(import_module(f"config.commands.{module}"), function or "main")
        return int(found(layout, options))

    return call


def _port(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a number from 1 to 65535")
