"""Frames are whole or refused, and never larger than the limits."""

import asyncio
import struct

import pytest

from sandbox_supervisor.runner import wire


def reader_of(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


async def read(data: bytes, header_limit: int = 1000, payload_limit: int = 1000) -> wire.Frame | None:
    return await wire.read(reader_of(data), header_limit=header_limit, payload_limit=payload_limit)


async def test_a_frame_comes_out_as_it_went_in():
    assert await read(wire.pack({"a": [1, "ü"]}, b"\x00\xff")) == wire.Frame({"a": [1, "ü"]}, b"\x00\xff")


async def test_names_that_are_no_utf8_travel_with_replacement_characters():
    assert await read(wire.pack({"name": "a\udcff"})) == wire.Frame({"name": "a?"})


async def test_the_end_between_two_frames_is_an_end():
    assert await read(b"") is None


@pytest.mark.parametrize("length", [1, 7, 9, 14])
async def test_the_end_inside_a_frame_is_an_error(length: int):
    with pytest.raises(wire.WireError):
        await read(wire.pack({"a": 1}, b"xyz")[:length])


async def test_a_frame_over_a_limit_is_refused_before_it_is_read():
    for head, body in ((1001, 0), (0, 1001), (2**32 - 1, 2**32 - 1)):
        reader = asyncio.StreamReader()
        reader.feed_data(struct.pack(">II", head, body))
        async with asyncio.timeout(1):
            with pytest.raises(wire.WireError, match="limit"):
                await wire.read(reader, header_limit=1000, payload_limit=1000)


@pytest.mark.parametrize("header", [b"[1]", b"nonsense", b"\xff\xfe", b"1", b"[" * 900, b""])
async def test_a_header_that_is_no_object_is_refused(header: bytes):
    with pytest.raises(wire.WireError):
        await read(struct.pack(">II", len(header), 0) + header)
