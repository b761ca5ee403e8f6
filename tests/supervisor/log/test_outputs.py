import random
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_supervisor.log.outputs import INLINE, WINDOW, OutputStore
from sandbox_supervisor.log.window import starting, whole

CAP = 64 * 1024 * 1024


@pytest.fixture
def store(tmp_path):
    return OutputStore(tmp_path / "outputs", cap=CAP)


def small(tmp_path, cap):
    return OutputStore(tmp_path / f"outputs{cap}", cap=cap)


def texts(events):
    return [event.data["text"] for event in events]


def test_little_output_gathers_into_one_event(store):
    out = store.open("a.1.1")
    assert out.write("stdout", b"one ") == []
    assert out.write("stdout", b"two") == []
    (event,) = out.flush()
    assert (event.kind, event.data) == ("output", {"stream": "stdout", "text": "one two", "offset": 0, "length": 7})
    assert out.flush() == []


def test_both_streams_have_their_own_events_and_files(store):
    out = store.open("a.1.1")
    out.write("stderr", b"oh")
    out.write("stdout", b"ah")
    assert [(event.data["stream"], event.data["text"]) for event in out.flush()] == [("stdout", "ah"), ("stderr", "oh")]
    assert store.read("a.1.1", "stderr", 0, 10).data == b"oh"


def test_bytes_are_in_the_file_as_soon_as_they_are_written(store):
    store.open("a.1.1").write("stdout", b"at once")
    assert store.read("a.1.1", "stdout", 0, 100).data == b"at once"


@pytest.mark.parametrize("size", [INLINE - 1, INLINE])
def test_up_to_sixteen_kibibytes_an_event_carries_the_text(store, size):
    out = store.open("a.1.1")
    out.write("stdout", b"x" * size)
    (event,) = out.flush()
    assert event.data["text"] == "x" * size


def test_more_than_that_is_described_and_stays_in_the_file(store):
    payload = random.Random(1).randbytes(INLINE + 1)
    out = store.open("a.1.1")
    out.write("stdout", payload)
    (event,) = out.close()
    data = event.data
    assert (data["file"], data["offset"], data["length"]) == ("a.1.1.stdout", 0, len(payload))
    assert data["digest"] == "sha256:" + sha256(payload).hexdigest()
    assert "text" not in data
    assert len(data["head"]) <= 2048
    assert len(data["tail"]) <= 2048


def test_a_flood_gives_few_events_that_cover_every_byte(store):
    out = store.open("a.1.1")
    events = []
    for _ in range(64):
        events += out.write("stdout", b"y" * 65536)
    events += out.close()
    assert len(events) == 64 * 65536 // WINDOW
    assert sum(event.data["length"] for event in events) == 64 * 65536
    assert [event.data["offset"] for event in events] == [at * WINDOW for at in range(len(events))]


def test_a_code_point_is_never_cut_between_events(store):
    out = store.open("a.1.1")
    told = []
    for byte in "zwölf Bäume ☃ 🌲 ende".encode():
        out.write("stdout", bytes([byte]))
        told += texts(out.flush())
    told += texts(out.close())
    assert "".join(told) == "zwölf Bäume ☃ 🌲 ende"
    assert "\ufffd" not in "".join(told)


def test_invalid_utf8_is_replaced_in_the_event_and_kept_in_the_file(store):
    out = store.open("a.1.1")
    out.write("stdout", b"a\xff\xfeb\xc3(")
    (event,) = out.flush()
    assert event.data["text"] == "a\ufffd\ufffdb\ufffd("
    assert store.read("a.1.1", "stdout", 0, 100).data == b"a\xff\xfeb\xc3("


def test_an_unfinished_code_point_at_the_end_is_told_at_the_close(store):
    out = store.open("a.1.1")
    out.write("stdout", b"x\xf0\x9f\x8c")
    assert texts(out.flush()) == ["x"]
    assert texts(out.close()) == ["\ufffd"]


def test_control_characters_stay(store):
    out = store.open("a.1.1")
    out.write("stdout", b"\x1b[2J\x00\x07")
    assert texts(out.flush()) == ["\x1b[2J\x00\x07"]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40))
def test_cutting_at_code_points_loses_nothing(data):
    cut = whole(data)
    assert len(data) - cut <= 3
    joined = data[:cut].decode("utf-8", "replace") + data[cut:].decode("utf-8", "replace")
    assert joined == data.decode("utf-8", "replace")
    assert 0 <= starting(data) <= min(3, len(data))


def test_beyond_the_cap_head_and_tail_are_kept_and_it_is_said_once(tmp_path):
    store = small(tmp_path, 8192)  # 4096 a stream, 1024 of them head
    out = store.open("a.1.1")
    produced = random.Random(2).randbytes(50_000)
    events = []
    for at in range(0, len(produced), 700):
        events += out.write("stdout", produced[at : at + 700])
        events += out.flush()
    events += out.close() + out.close()
    cut = [event.data for event in events if event.kind == "output.truncated"]
    assert cut == [{"dropped_bytes": 50_000 - 4096, "streams": {"stdout": 50_000 - 4096}}]
    head = store.read("a.1.1", "stdout", 0, 100_000)
    assert (head.data, head.offset, head.size, head.dropped) == (produced[:1024], 0, 50_000, 45_904)
    tail = store.read("a.1.1", "stdout", 1024, 100_000)
    assert (tail.data, tail.offset) == (produced[-3072:], 50_000 - 3072)
    assert (tmp_path / "outputs8192" / "a.1.1.stdout").stat().st_size == 4096


def test_exactly_at_the_cap_nothing_is_dropped(tmp_path):
    store = small(tmp_path, 8192)
    out = store.open("a.1.1")
    out.write("stdout", b"z" * 4096)
    assert [event.kind for event in out.close()] == ["output"]
    assert store.read("a.1.1", "stdout", 0, 9999).dropped == 0


def test_one_byte_more_drops_one_byte(tmp_path):
    store = small(tmp_path, 8192)
    out = store.open("a.1.1")
    out.write("stdout", b"z" * 4097)
    assert out.close()[-1].data["dropped_bytes"] == 1


def test_the_default_cap_keeps_eight_mebibytes_of_head(store):
    out = store.open("a.1.1")
    for number in range(40):
        out.write("stdout", bytes([number]) * 1024 * 1024)
    out.close()
    assert store.read("a.1.1", "stdout", 8 * 1024 * 1024 - 1, 10).data == b"\x07"
    tail = store.read("a.1.1", "stdout", 8 * 1024 * 1024, 10)
    assert tail.data == bytes([16]) * 10
    assert store.used() <= CAP + 65536


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 3000), max_size=20), st.integers(64, 4096), st.randoms(use_true_random=False))
def test_head_and_tail_are_right_whatever_the_sizes_of_the_writes(tmp_path_factory, sizes, cap, chance):
    store = OutputStore(tmp_path_factory.mktemp("outputs"), cap=cap)
    out = store.open("a.1.1")
    produced = b""
    for size in sizes:
        piece = chance.randbytes(size)
        produced += piece
        out.write("stdout", piece)
    out.close()
    whole_file = store.read("a.1.1", "stdout", 0, 1 << 20)
    rest = store.read("a.1.1", "stdout", whole_file.offset + len(whole_file.data), 1 << 20)
    assert produced.startswith(whole_file.data)
    assert rest.data == produced[rest.offset :]
    kept = len(whole_file.data) + len(rest.data)
    assert kept == min(len(produced), cap // 2)
    assert whole_file.dropped == len(produced) - kept


def test_after_a_crash_output_goes_on_where_it_stood(tmp_path):
    store = small(tmp_path, 8192)
    first = store.open("a.1.1")
    first.write("stdout", b"a" * 6000)
    again = small(tmp_path, 8192).open("a.1.1")
    again.write("stdout", b"b" * 10)
    (event,) = again.flush()
    assert event.data["offset"] == 6000
    tail = store.read("a.1.1", "stdout", 6000 - 20, 100)
    assert tail.data == b"a" * 20 + b"b" * 10


def test_a_read_in_the_middle_is_bounded_and_clipped(store):
    store.open("a.1.1").write("stdout", b"0123456789")
    assert store.read("a.1.1", "stdout", 3, 4).data == b"3456"
    assert store.read("a.1.1", "stdout", 50, 4).data == b""
    assert store.read("a.1.1", "stdout", -5, 2).data == b"01"


@pytest.mark.parametrize(
    ("attempt", "stream"),
    [("b.1.1", "stdout"), ("a.1.1", "secret"), ("../log", "stdout"), (".hidden", "stdout"), ("a\0b", "stdout")],
)
def test_what_is_no_stream_is_not_found(store, attempt, stream):
    store.open("a.1.1").write("stdout", b"x")
    with pytest.raises(FileNotFoundError):
        store.read(attempt, stream, 0, 10)


def test_a_link_put_in_place_of_a_stream_is_not_followed(store, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "outputs" / "a.1.1.stdout").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic"):
        store.read("a.1.1", "stdout", 0, 10)
