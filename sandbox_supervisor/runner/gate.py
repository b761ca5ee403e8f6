"""The supervisor's end of the ``ctl`` socket: lets in one proven runner at a time."""

import asyncio
import hmac
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

from sandbox_supervisor.protocol import PROTOCOL
from sandbox_supervisor.runner import wire
from sandbox_supervisor.runner.remote import Hello, RemoteRunner

SOCKET = "ctl.sock"
PROOF_TIME = 5.0  # seconds in which a connection must have proven itself
PROOF_LIMIT = 16 * 1024
UNPROVEN_LIMIT = 8  # connections that may be busy proving themselves


class RunnerGate:
    """``accept`` gives the next runner once the one before is lost; who does not know the nonce is dropped unheard."""

    def __init__(self, folder: Path, nonce: str, *, uids: frozenset[int] | None = None) -> None:
        self._folder = folder
        self._nonce = nonce.encode()
        self._uids = uids if uids is not None else frozenset({os.getuid()})
        self._server: asyncio.Server | None = None
        self._current: RemoteRunner | None = None
        self._arrived: asyncio.Queue[RemoteRunner] = asyncio.Queue(maxsize=1)
        self._unproven = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen on ``ctl.sock`` in the folder, replacing what an earlier supervisor left there."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with suppress(FileNotFoundError):
                os.unlink(SOCKET, dir_fd=fd)
            sock.bind(f"/proc/self/fd/{fd}/{SOCKET}")  # the path itself may be too long for a socket address
            os.chmod(SOCKET, 0o600, dir_fd=fd)
        except OSError:
            sock.close()
            raise
        finally:
            os.close(fd)
        self._server = await asyncio.start_unix_server(self._on_connection, sock=sock, backlog=16)

    async def accept(self) -> RemoteRunner:
        """Wait for the next proven runner."""
        while True:
            runner = await self._arrived.get()
            if not runner.lost:
                return runner

    async def close(self) -> None:
        """Stop listening and drop the runner, which then kills its trees."""
        if self._server is not None:
            self._server.close()
        if self._current is not None:
            await self._current.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(FileNotFoundError):
            (self._folder / SOCKET).unlink()

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._unproven >= UNPROVEN_LIMIT or peer_uid(writer) not in self._uids:
            writer.transport.abort()
            return
        self._unproven += 1
        task = asyncio.create_task(self._prove(reader, writer), name="runner:proof")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _prove(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = None
        try:
            async with asyncio.timeout(PROOF_TIME):
                hello = self._check(await wire.read(reader, header_limit=PROOF_LIMIT, payload_limit=0))
        except (TimeoutError, wire.WireError, ConnectionError):
            pass
        finally:
            self._unproven -= 1
            taken = self._current is not None and not self._current.lost
            if hello is None or taken:
                writer.transport.abort()
        if hello is None or taken:
            return
        self._current = RemoteRunner(hello, reader, writer)
        self._current.start()
        while not self._arrived.empty():  # nobody asked for that one in its lifetime
            self._arrived.get_nowait()
        self._arrived.put_nowait(self._current)

    def _check(self, frame: wire.Frame | None) -> Hello | None:
        if frame is None or frame.header.get("t") != "hello":
            return None
        if not hmac.compare_digest(str(frame.header.get("nonce")).encode("utf-8", "replace"), self._nonce):
            return None
        return Hello.read(frame.header) if frame.header.get("protocol") == PROTOCOL else None


def peer_uid(writer: asyncio.StreamWriter) -> int:
    """Give the user id that the kernel vouches for."""
    sock = writer.get_extra_info("socket")
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)
