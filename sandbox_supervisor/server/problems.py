"""Errors as RFC 9457 problem documents."""

from typing import Any

from starlette.responses import Response

from sandbox_supervisor.protocol import codec


class Problem(Exception):
    """An answer that is an error. ``detail`` says what, where and how to go on; it never repeats the input."""

    def __init__(self, status: int, code: str, detail: str, **facts: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.facts = facts

    def response(self) -> Response:
        body = {
            "type": "about:blank",
            "title": self.code.replace("_", " "),
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            **self.facts,
        }
        return Response(
            codec.encode(body),
            self.status,
            media_type="application/problem+json",
            headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
        )
