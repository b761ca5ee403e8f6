from hypothesis import given
from hypothesis import strategies as st

from sandbox_supervisor.protocol.events import Envelope
from sandbox_supervisor.protocol.stream import FRAME_LIMIT, MOST_CREDIT, Credit, EventsFrame, Merged, read_server_frame
from sandbox_supervisor.server.frames import events_frame
from sandbox_supervisor.server.merge import KEPT, MERGED_TEXT, Page, merge


def message(seq: int, text: str, *, attempt: str = "a.1.1", id: str = "m1") -> Envelope:
    data = {"id": id, "role": "agent", "text": text}
    return Envelope(seq=seq, epoch="e", at="", kind="session.message", attempt=attempt, data=data)


def output(seq: int, text: str, *, stream: str = "stdout", attempt: str = "a.1.1") -> Envelope:
    return Envelope(seq=seq, epoch="e", at="", kind="output", attempt=attempt, data={"stream": stream, "text": text})


def state(seq: int, *, attempt: str | None = "a.1.1") -> Envelope:
    return Envelope(seq=seq, epoch="e", at="", kind="attempt.state", attempt=attempt, data={"state": "running"})


def texts(page: Page) -> list[tuple[int, str | None]]:
    return [(event.seq, event.data.get("text")) for event in page.events]


def test_chunks_of_one_message_become_one_with_the_seq_of_the_last():
    page = merge([message(1, "a"), message(2, "b"), message(3, "c")], abridge=False)
    assert texts(page) == [(3, "abc")]
    assert page.merged == (Merged(first=1, last=3, events=3),)


def test_chunks_of_other_attempts_may_lie_between():
    events = [message(1, "a"), message(2, "x", attempt="b.1.1"), message(3, "b"), message(4, "y", attempt="b.1.1")]
    page = merge(events, abridge=False)
    assert texts(page) == [(3, "ab"), (4, "xy")]
    assert page.merged == (Merged(first=1, last=3, events=2), Merged(first=2, last=4, events=2))


def test_nothing_is_merged_across_another_event_of_the_same_attempt():
    page = merge([message(1, "a"), state(2), message(3, "b")], abridge=False)
    assert texts(page) == [(1, "a"), (2, None), (3, "b")]
    assert page.merged == ()


def test_messages_and_streams_with_different_ids_stay_apart():
    page = merge(
        [message(1, "a"), message(2, "b", id="m2"), output(3, "c"), output(4, "d", stream="stderr")], abridge=False
    )
    assert texts(page) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_output_that_lies_in_a_file_is_left_alone():
    filed = Envelope(
        seq=1, epoch="e", at="", kind="output", attempt="a.1.1", data={"stream": "stdout", "file": "f", "text": "x"}
    )
    page = merge([filed, output(2, "y")], abridge=False)
    assert texts(page) == [(1, "x"), (2, "y")]


def test_a_merged_text_has_a_longest_length():
    page = merge([output(seq, "x" * 16_000) for seq in range(1, 11)], abridge=False)
    assert len(page.events) > 1
    assert all(len(event.data["text"]) <= MERGED_TEXT for event in page.events)
    assert "".join(event.data["text"] for event in page.events) == "x" * 160_000


def test_abridging_keeps_both_ends_and_names_what_it_cut():
    long = "h" * KEPT + "é" * 1000 + "t" * KEPT
    page = merge([output(1, long)], abridge=True)
    assert page.events[0].data["text"] == "h" * KEPT + "…" + "t" * KEPT
    assert page.merged == (Merged(first=1, last=1, events=1, dropped_bytes=2000),)


def test_without_abridging_no_text_is_cut():
    page = merge([output(1, "x" * 20_000)], abridge=False)
    assert page == Page(events=(output(1, "x" * 20_000),))


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["a.1.1", "b.1.1"]),
        st.sampled_from(["message", "output", "state"]),
        st.text(max_size=40),
        st.booleans(),
    ),
    max_size=60,
)


def made(shape) -> list[Envelope]:
    makers = {
        "message": lambda seq, attempt, text, first: message(seq, text, attempt=attempt, id="m1" if first else "m2"),
        "output": lambda seq, attempt, text, first: output(
            seq, text, attempt=attempt, stream="stdout" if first else "stderr"
        ),
        "state": lambda seq, attempt, text, first: state(seq, attempt=attempt),
    }
    return [makers[kind](seq, attempt, text, first) for seq, (attempt, kind, text, first) in enumerate(shape, 1)]


@given(EVENTS)
def test_merging_keeps_every_text_in_order_within_its_attempt(shape):
    events = made(shape)
    page = merge(events, abridge=False)
    for attempt in ("a.1.1", "b.1.1"):
        before = [
            (e.kind, e.data.get("id"), e.data.get("stream"), e.data.get("text", "|"))
            for e in events
            if e.attempt == attempt
        ]
        after = [
            (e.kind, e.data.get("id"), e.data.get("stream"), e.data.get("text", "|"))
            for e in page.events
            if e.attempt == attempt
        ]
        assert "".join(entry[3] for entry in before) == "".join(entry[3] for entry in after)
        assert [e[:3] for e in collapsed(before)] == [e[:3] for e in collapsed(after)]


@given(EVENTS)
def test_every_event_is_sent_or_lies_in_a_named_range(shape):
    events = made(shape)
    page = merge(events, abridge=False)
    sent = {event.seq for event in page.events}
    assert sent <= {event.seq for event in events}
    assert len(events) == len(sent) + sum(note.events - 1 for note in page.merged)
    for event in events:
        assert event.seq in sent or any(note.first <= event.seq <= note.last for note in page.merged)


def collapsed(entries):
    kept: list[tuple[object, ...]] = []
    for entry in entries:
        if not kept or kept[-1][:3] != entry[:3] or entry[0] == "attempt.state":
            kept.append(entry)
    return kept


def frame_of(page: Page, *, upto: int, room: Credit = MOST_CREDIT) -> EventsFrame:
    made = events_frame(page, epoch="e", prev=0, upto=upto, room=room)
    assert made is not None
    assert len(made.data) <= FRAME_LIMIT
    frame = read_server_frame(made.data)
    assert isinstance(frame, EventsFrame)
    return frame


def test_a_frame_that_takes_everything_covers_what_was_filtered_too():
    frame = frame_of(Page(events=(state(3), state(7))), upto=9)
    assert [event.seq for event in frame.events] == [3, 7]
    assert frame.upto == 9


def test_a_frame_that_is_cut_covers_only_its_last_event():
    frame = frame_of(
        Page(events=tuple(state(seq) for seq in range(1, 21))), upto=25, room=Credit(events=5, bytes=99999)
    )
    assert [event.seq for event in frame.events] == [1, 2, 3, 4, 5]
    assert frame.upto == 5


def test_a_merged_page_that_does_not_fit_is_not_cut():
    page = merge([message(1, "a"), state(2, attempt="b.1.1"), message(3, "b")], abridge=False)
    assert [event.seq for event in page.events] == [2, 3]
    assert events_frame(page, epoch="e", prev=0, upto=3, room=Credit(events=1, bytes=99999)) is None
    assert frame_of(page, upto=3).merged == (Merged(first=1, last=3, events=2),)


def test_an_event_above_the_frame_limit_is_named_instead_of_sent():
    frame = frame_of(Page(events=(output(1, "x" * 300_000), state(2))), upto=2)
    assert frame.events[0].data["oversize"] > 300_000
    assert frame.merged[0].first == frame.merged[0].last == 1
    assert frame.merged[0].dropped_bytes > 300_000
    assert frame.upto == 2
