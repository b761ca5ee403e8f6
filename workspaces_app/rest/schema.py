"""Describe the API in OpenAPI from the same shapes that read and write it."""

import re
from typing import Any, cast

import msgspec
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema

REF = "#/components/schemas/{name}"
_shapes: dict[str, type[Any]] = {}


class Schema(AutoSchema):
    """Take everything from the ``methods`` that the view declares."""

    def get_operation_id(self) -> str:
        words = re.sub(r"(?<!^)(?=[A-Z])", "_", type(self.view).__name__).lower()
        return f"{self.method.lower()}_{words}"

    def get_tags(self) -> list[str]:
        parts = [part for part in re.split(r"[/:]", self.path.removeprefix("/api/v1/")) if part]
        return [parts[0] if parts else "meta"]

    def get_description(self) -> str:  # type: ignore[override]  # as drf-spectacular has it
        handler = getattr(self.view, self.method.lower(), None)
        text: str = (getattr(handler, "__doc__", None) or type(self.view).__doc__ or "").strip()
        return "\n".join(line.strip() for line in text.splitlines())

    def get_override_parameters(self) -> list[Any]:
        return []

    def _get_parameters(self) -> list[dict[str, Any]]:
        return [*self._path_parameters(), *self._query_parameters(), *self._header_parameters()]

    def _path_parameters(self) -> list[dict[str, Any]]:
        names = re.findall(r"{(\w+)}", self.path)
        return [{"in": "path", "name": name, "required": True, "schema": {"type": "string"}} for name in names]

    def _query_parameters(self) -> list[dict[str, Any]]:
        described = _inline(self._declared().query)
        required = set(described.get("required", ()))
        return [
            {"in": "query", "name": name, "schema": schema, **({"required": True} if name in required else {})}
            for name, schema in described.get("properties", {}).items()
        ]

    def _header_parameters(self) -> list[dict[str, Any]]:
        said = self._declared()
        schema = {"type": "string", "maxLength": 200}
        needed = [{"in": "header", "name": name, "required": True, "schema": schema} for name in said.needs]
        return [*needed, *({"in": "header", "name": name, "schema": schema} for name in said.headers)]

    def _get_request_body(self, direction: str = "request") -> dict[str, Any] | None:
        shape = self._declared().body
        if shape is None:
            return None
        return {"required": True, "content": {"application/json": {"schema": _reference(shape)}}}

    def _get_response_bodies(self, direction: str = "response") -> dict[str, Any]:
        said = self._declared()
        content: dict[str, Any] = {}
        if said.answer is not None:
            content = {"content": {said.media_type: {"schema": _reference(said.answer)}}}
        elif said.status != 204:
            content = {"content": {said.media_type: {"schema": {"type": "string", "format": "binary"}}}}
        problem = {"application/problem+json": {"schema": {"$ref": REF.format(name="Problem")}}}
        return {
            str(said.status): {"description": "As asked.", **content},
            "default": {"description": "A problem.", "content": problem},
        }

    def _declared(self) -> Any:
        """Give the ``Method`` that the view declares."""
        return cast("Any", self.view).methods[self.method]


def _reference(shape: type[Any]) -> dict[str, Any]:
    _shapes[shape.__qualname__] = shape
    (reference,), _ = msgspec.json.schema_components([shape], ref_template=REF)
    return reference


def _inline(shape: type[Any]) -> dict[str, Any]:
    (reference,), components = msgspec.json.schema_components([shape], ref_template=REF)
    name = str(reference.get("$ref", "")).rpartition("/")[2]
    return dict(components.get(name, reference))


PROBLEM = {
    "type": "object",
    "description": "RFC 9457. Further members depend on `code`.",
    "required": ["type", "title", "status", "code", "detail", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object", "additionalProperties": True}},
    },
    "additionalProperties": True,
}


def only_ours(endpoints: list[Any], **_: Any) -> list[Any]:
    """Keep the public API's endpoints; a pre-processing hook of drf-spectacular."""
    return [endpoint for endpoint in endpoints if endpoint[0].startswith("/api/v1/")]


def add_shapes(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Add the shapes that operations refer to; a post-processing hook of drf-spectacular."""
    shapes = [_shapes[name] for name in sorted(_shapes)]
    _, components = msgspec.json.schema_components(shapes, ref_template=REF)
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    schemas.update({name: components[name] for name in sorted(components)} | {"Problem": PROBLEM})
    return result


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "workspaces_app.rest.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "csn_<id>_<secret>"}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "workspaces_app.rest.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "apiKey", "in": "cookie", "name": "caisson_session"}
