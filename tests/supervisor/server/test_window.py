import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_supervisor.protocol.codec import Malformed
from sandbox_supervisor.protocol.stream import PATIENCE, Ack, Credit, Position, Window


def window(events: int = 10, size: int = 1000) -> Window:
    return Window(credit=Credit(events=events, bytes=size))


@pytest.mark.parametrize(("events", "size"), [(10, 1), (1, 1000)])
def test_a_window_closes_when_either_credit_is_used_up(events, size):
    made = window()
    made.sent(5, events=events, size=size, now=0.0)
    assert not made.open()
    made.ack(Ack(seq=5), now=1.0)
    assert made.open()


def test_an_ack_settles_everything_up_to_its_seq():
    made = window()
    for upto in (3, 6, 9):
        made.sent(upto, events=3, size=100, now=0.0)
    made.ack(Ack(seq=7), now=1.0)
    assert (made.events, made.bytes, made.acked) == (3, 100, 7)


def test_parts_of_a_snapshot_are_settled_one_by_one():
    made = window()
    for part in (1, 2, 3):
        made.sent(42, events=0, size=300, now=0.0, part=part)
    made.ack(Ack(seq=42, part=2), now=1.0)
    assert made.bytes == 300
    made.ack(Ack(seq=42), now=1.0)
    assert made.bytes == 0


def test_patience_counts_from_the_last_ack_that_settled_something():
    made = window()
    made.sent(1, events=1, size=1, now=0.0)
    made.sent(2, events=1, size=1, now=0.0)
    made.ack(Ack(seq=1), now=PATIENCE)
    made.ack(Ack(seq=1), now=PATIENCE + 20)
    assert not made.overdue(2 * PATIENCE)
    assert made.overdue(2 * PATIENCE + 0.1)


def test_a_client_with_nothing_to_acknowledge_is_never_overdue():
    made = window()
    made.sent(1, events=1, size=1, now=0.0)
    made.ack(Ack(seq=1), now=0.5)
    assert not made.overdue(1_000_000.0)


def test_what_was_never_sent_cannot_be_acknowledged():
    made = window()
    made.sent(5, events=1, size=1, now=0.0)
    with pytest.raises(Malformed):
        made.ack(Ack(seq=6), now=0.0)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 500), st.booleans()), max_size=50))
def test_what_is_outstanding_never_exceeds_the_credit_by_more_than_one_frame(steps):
    made = window(events=8, size=800)
    upto = 0
    for events, size, acks in steps:
        if made.open():
            upto += events
            made.sent(upto, events=events, size=size, now=0.0)
        if acks and made.outstanding:
            made.ack(Ack(seq=made.outstanding[0].upto), now=0.0)
        assert made.events < 8 + 5
        assert made.bytes < 800 + 500
        assert made.events == sum(entry.events for entry in made.outstanding)


@pytest.mark.parametrize("text", ["", ":", "e", "e:", ":5", "e:-1", "e:x", "e:5 ", "e:٣", "e:" + "9" * 30])
def test_a_malformed_position_is_refused(text):
    with pytest.raises(Malformed):
        Position.parse(text)


@given(st.from_regex(r"[a-z0-9:-]{1,20}", fullmatch=True), st.integers(0, 10**17))
def test_a_position_reads_back_what_it_wrote(epoch, seq):
    position = Position(epoch=epoch, seq=seq)
    assert Position.parse(str(position)) == position
