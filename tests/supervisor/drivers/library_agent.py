"""An agent written with the public ``agent-client-protocol`` package, for comparison."""

import asyncio
from typing import Any, cast

from acp import (
    PROTOCOL_VERSION,
    Agent,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    run_agent,
    start_tool_call,
    text_block,
    update_agent_message,
)
from acp.schema import PermissionOption, ToolCallUpdate


class Echo:
    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=PROTOCOL_VERSION)

    async def new_session(self, **_: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id="lib")

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        await self.client.session_update(session_id, update_agent_message(text_block(f"You said: {prompt[0].text}")))
        await self.client.session_update(
            session_id, start_tool_call("c1", "Write a file", kind="edit", status="pending")
        )
        options = [PermissionOption(option_id="yes", name="Yes", kind="allow_once")]
        call = ToolCallUpdate(tool_call_id="c1", title="Write a file")
        answer = await self.client.request_permission(options=options, session_id=session_id, tool_call=call)
        await self.client.session_update(
            session_id, update_agent_message(text_block(f"Allowed: {answer.outcome.option_id}"))
        )
        return PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    asyncio.run(run_agent(cast("Agent", Echo())))
