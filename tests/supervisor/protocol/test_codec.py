from typing import Any

import pytest

from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.messages import Command


@pytest.mark.parametrize("into", [Any, dict[str, Any], Command])
@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000])
def test_what_is_nested_without_end_is_malformed(into, text):
    with pytest.raises(codec.Malformed):
        codec.decode(text, into)


@pytest.mark.parametrize("text", [rb'"\ud800"', b'"\xed\xa0\x80"', b"1e999", b"NaN", b"\xef\xbb\xbf1", b"1 2", b""])
def test_what_only_some_readers_take_for_json_is_malformed(text):
    with pytest.raises(codec.Malformed):
        codec.decode(text, Any)
