"""The driver host: one process per attempt that parses what an agent sends, so that neither runner nor supervisor does.

Its line to the runner is descriptor 3. It gets the job there, then ``reply``, ``message``, ``cancel`` and ``close``.
"""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

from sandbox_supervisor.drivers.acp import Job, Session
from sandbox_supervisor.drivers.scripted import PLAY
from sandbox_supervisor.drivers.uplink import Uplink
from sandbox_supervisor.processes import forbid_dump
from sandbox_supervisor.runner import wire

LINE_FD = 3
ROOT = Path(__file__).resolve().parents[2]
SCRIPTED = (sys.executable, "-P", "-s", "-B", "-m", "sandbox_supervisor.drivers.scripted")


def main(_argv: list[str]) -> int:
    """Serve one session."""
    forbid_dump()
    os.set_inheritable(LINE_FD, False)
    return asyncio.run(_serve(socket.socket(fileno=LINE_FD)))


async def _serve(sock: socket.socket) -> int:
    reader, writer = await asyncio.open_connection(sock=sock)
    line = wire.Line(writer)
    frame = await wire.read(reader, header_limit=wire.CALL_LIMIT)
    if frame is None:
        return 0
    up = Uplink(line)
    session = Session(job_of(frame.header["job"]), up)
    listening = asyncio.create_task(_listen(reader, session, up), name="listen")
    try:
        await up.end((await session.run()).plain())
    except ConnectionError:  # the runner is gone; the shim ends this tree
        return 1
    finally:
        listening.cancel()
    writer.close()
    await writer.wait_closed()
    return 0


async def _listen(reader: asyncio.StreamReader, session: Session, up: Uplink) -> None:
    while frame := await wire.read(reader, header_limit=wire.CALL_LIMIT):
        match frame.header:
            case {"t": "reply", "request_id": str(request_id), "answer": dict(answer)}:
                up.answer(request_id, answer)
            case {"t": "message", "text": str(text)}:
                session.message(text)
            case {"t": "cancel"}:
                await session.cancel()
            case {"t": "close"}:
                session.close()


def job_of(order: dict[str, Any]) -> Job:
    """Turn the runner's order into the session's job; the scripted agent is a program of ours like any other."""
    argv, env, meta = tuple(order["argv"]), dict(order["env"]), None
    if order.get("scripted"):
        argv, env = SCRIPTED, env | {"PYTHONPATH": str(ROOT)}
        meta = {PLAY: {"playbook": order.get("playbook"), "generation": order["generation"], "attempt": order["n"]}}
    return Job(
        argv=argv,
        env=env,
        cwd=order["cwd"],
        prompt=order["prompt"],
        result_file=order["result_file"],
        result_schema=order.get("result_schema"),
        permissions=order.get("permissions", "ask"),
        exit_patience=float(order["exit_patience"]),
        meta=meta,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
