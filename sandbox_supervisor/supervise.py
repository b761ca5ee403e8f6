"""``python -m sandbox_supervisor supervise``: run the graph of one sandbox, or check its log."""

import argparse
import asyncio
import json
import logging
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from sandbox_supervisor import lifetime
from sandbox_supervisor.engine.reports import SandboxIdentity
from sandbox_supervisor.engine.running import Options, Running, Service, supervise
from sandbox_supervisor.lifetime import EXIT_CORRUPT, EXIT_FOLDER_GONE, EXIT_FULL, EXIT_LOCKED, EXIT_SPECIFICATION
from sandbox_supervisor.log import AlreadyLocked, Log, StorageCorrupt, StorageFull
from sandbox_supervisor.processes import become_subreaper, forbid_dump
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.spec import TaskSpecification


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What the launcher hands over through memory files; never on disk, in arguments or in the environment."""

    task_token: str
    dial_token: str
    runner_nonce: str
    pem: bytes


def main(argv: list[str]) -> int:
    """Run until told to end. Exit codes: 0 told to end, 65 specification, 66 folder gone, 74 log damaged, 75 locked."""
    arguments = _arguments(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    if arguments.verify:
        return _verify(arguments.folder)
    try:
        spec = codec.decode(arguments.spec.read_bytes(), TaskSpecification)
    except (OSError, codec.Malformed) as error:
        sys.stderr.write(f"{arguments.spec}: not a task specification: {error}\n")
        return EXIT_SPECIFICATION
    become_subreaper()
    if arguments.standalone:
        from sandbox_supervisor import standalone

        return standalone.run(spec, arguments)
    forbid_dump()
    import sandbox_supervisor.server.serve  # noqa: F401  # meanwhile what is read next may still be on its way

    options = _options(spec, arguments)
    return lifetime.run(lambda: supervise(options))


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sandbox_supervisor supervise")
    parser.add_argument("--spec", type=Path, help="task specification (JSON); default: spec.json in the folder")
    parser.add_argument("--folder", type=Path, required=True, help="the sandbox's own folder")
    parser.add_argument("--verify", action="store_true", help="check the whole log and exit: 0 sound, 74 damaged")
    launched = parser.add_argument_group("as the launcher starts it")
    launched.add_argument("--instance", default="")
    launched.add_argument("--fingerprint", default="")
    launched.add_argument("--listen-fd", type=int)
    launched.add_argument("--tls-fd", type=int)
    launched.add_argument("--secrets-fd", type=int)
    alone = parser.add_argument_group("a graph from a file, without control plane")
    alone.add_argument("--standalone", action="store_true")
    alone.add_argument("--repository", help="where to clone from; default: the specification's clone_url")
    alone.add_argument("--isolation", default="auto", choices=["auto", "bubblewrap", "none"])
    alone.add_argument("--answer", choices=["first"], help="answer every request with its first option")
    alone.add_argument("--stay", action="store_true", help="do not exit when the graph has ended")
    arguments = parser.parse_args(argv)
    arguments.folder = arguments.folder.absolute()
    arguments.spec = arguments.spec or arguments.folder / "spec.json"
    if not (arguments.standalone or arguments.verify or arguments.secrets_fd is not None):
        parser.error("either --standalone, --verify, or the descriptors of a launcher")
    return arguments


def _options(spec: TaskSpecification, arguments: argparse.Namespace) -> Options:
    secrets = _read_secrets(arguments.secrets_fd, arguments.tls_fd)
    return Options(
        spec=spec,
        folder=arguments.folder,
        nonce=secrets.runner_nonce,
        identity=SandboxIdentity(instance=arguments.instance, fingerprint=arguments.fingerprint),
        task_token=secrets.task_token,
        services=(_server(arguments.listen_fd, secrets, arguments.instance, codec.digest(spec)),),
    )


def _read_secrets(secrets_fd: int, tls_fd: int) -> Secrets:
    with os.fdopen(secrets_fd, "rb") as file:
        told = json.load(file)
    with os.fdopen(tls_fd, "rb") as file:
        pem = file.read()
    return Secrets(
        task_token=told["task_token"], dial_token=told["dial_token"], runner_nonce=told["runner_nonce"], pem=pem
    )


def _server(fd: int, secrets: Secrets, instance: str, specification: str) -> Service:
    async def serve_it(running: Running) -> None:
        from sandbox_supervisor.server.serve import ServerIdentity, serve

        await serve(
            running.facade,
            listener=socket.socket(fileno=os.dup(fd)),
            pem=secrets.pem,
            token=secrets.dial_token,
            identity=ServerIdentity(instance=instance, specification=specification),
        )

    return serve_it


def _verify(folder: Path) -> int:
    if not (folder / "log").is_dir():
        sys.stderr.write(f"there is no log in {folder}\n")
        return EXIT_FOLDER_GONE
    try:
        log = Log.open(folder / "log")
        log.verify(full=True)
        head = log.head()
        asyncio.run(log.close())
    except AlreadyLocked as error:
        sys.stderr.write(f"a supervisor holds the log: {error}\n")
        return EXIT_LOCKED
    except StorageFull:
        sys.stderr.write("the disk is too full to open the log\n")
        return EXIT_FULL
    except StorageCorrupt as error:
        sys.stdout.write(f"damaged: {error}\n")
        return EXIT_CORRUPT
    sys.stdout.write(f"sound: {head.seq} events, chain {head.chain}\n")
    return 0
