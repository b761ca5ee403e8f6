import re
import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry_app.flows.layout import BOX_HEIGHT, BOX_WIDTH, ROW, Picture, draw
from sandbox_supervisor.protocol.flow import Flow, Node, NodeKind, Rework


def node(key: str, *needs: str, rework: str | None = None) -> Node:
    asked = Rework(node=rework, when=(), max_rounds=2) if rework else None
    return Node(key=key, kind=NodeKind.COMMAND, needs=needs, rework=asked)


def picture(*nodes: Node, finally_: tuple[Node, ...] = ()) -> Picture:
    return draw(Flow(name="flow", nodes=nodes, finally_=finally_))


def place(drawn: Picture, key: str) -> tuple[int, int]:
    return next((box.x, box.y) for box in drawn.boxes if box.key == key)


def overlap(drawn: Picture) -> list[tuple[str, str]]:
    return [
        (a.key, b.key)
        for a, b in combinations(drawn.boxes, 2)
        if abs(a.x - b.x) < BOX_WIDTH and abs(a.y - b.y) < BOX_HEIGHT
    ]


def test_a_chain_stands_in_one_column_from_top_to_bottom():
    drawn = picture(node("a"), node("b", "a"), node("c", "b"))
    places = [place(drawn, key) for key in "abc"]
    assert len({x for x, _ in places}) == 1
    assert [y for _, y in places] == [8, 8 + ROW, 8 + 2 * ROW]


def test_siblings_share_a_rank_and_keep_their_definition_order():
    drawn = picture(node("plan"), node("first", "plan"), node("second", "plan"), node("merge", "first", "second"))
    assert place(drawn, "first")[1] == place(drawn, "second")[1]
    assert place(drawn, "first")[0] < place(drawn, "second")[0]


def test_a_node_without_any_edge_is_drawn_too():
    drawn = picture(node("alone"), node("a"), node("b", "a"))
    assert {box.key for box in drawn.boxes} == {"alone", "a", "b"}
    assert overlap(drawn) == []


def test_boxes_come_in_definition_order_with_finally_last():
    drawn = picture(node("b"), node("a", "b"), finally_=(node("cleanup"),))
    assert [box.key for box in drawn.boxes] == ["b", "a", "cleanup"]


def test_finally_nodes_stand_below_everything_else():
    drawn = picture(node("a"), node("b", "a"), finally_=(node("clean"), node("report", "clean")))
    assert drawn.finally_y is not None
    assert place(drawn, "b")[1] < drawn.finally_y < place(drawn, "clean")[1] == place(drawn, "report")[1]


def test_a_flow_without_finally_has_no_band():
    assert picture(node("a")).finally_y is None


def test_every_need_is_one_edge():
    drawn = picture(node("a"), node("b", "a"), node("c", "a", "b"))
    assert {(edge.source, edge.target) for edge in drawn.edges} == {("a", "b"), ("a", "c"), ("b", "c")}


def test_a_long_edge_bends_around_the_nodes_that_it_passes():
    drawn = picture(node("a"), node("b", "a"), node("c", "a", "b"))
    long = next(edge for edge in drawn.edges if (edge.source, edge.target) == ("a", "c"))
    assert "Q" in long.path


def test_a_rework_is_an_arc_inside_the_picture_with_its_bound():
    drawn = picture(node("a"), node("b", "a"), node("c", "b", rework="a"))
    (arc,) = drawn.arcs
    assert (arc.source, arc.target, arc.max_rounds) == ("c", "a", 2)
    assert arc.pill_x >= 0
    assert place(drawn, "a")[0] > arc.pill_x


def test_a_rework_of_a_node_that_others_stand_left_of_passes_below_them():
    drawn = picture(node("a"), node("left", "a"), node("right", "a"), node("c", "left", "right", rework="right"))
    (arc,) = drawn.arcs
    left, right = place(drawn, "left"), place(drawn, "right")
    assert left[0] < right[0]
    levels = [int(level) for level in re.findall(r"[QV]\S* ?(?:\S+ \S+ )?(\d+)", arc.path)]
    assert left[1] + BOX_HEIGHT < min(levels)
    assert arc.head.startswith(f"M{right[0] + 16} {right[1] + BOX_HEIGHT + 7}")


def test_a_large_flow_is_never_shrunk_below_what_can_be_read():
    wide = picture(node("a"), *(node(f"n{number}", "a") for number in range(30)))
    assert wide.shown_width == round(wide.width * 0.75) > 2000


def test_two_reworks_have_two_arcs_at_different_distances():
    drawn = picture(node("a"), node("b", "a", rework="a"), node("c", "b", rework="b"))
    assert len({arc.pill_x for arc in drawn.arcs}) == 2


def test_a_small_flow_is_framed_with_room_in_the_middle():
    drawn = picture(node("only"))
    left, top, width, height = map(int, drawn.frame.split())
    assert (top, width, height) == (0, 440, 420)
    assert drawn.is_small
    assert left < 0
    box = drawn.boxes[0]
    assert abs((box.x - left) - (left + width - box.x - box.width)) <= 2


def test_the_same_flow_is_drawn_the_same_way():
    nodes = (node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c"))
    assert picture(*nodes) == picture(*nodes)


@st.composite
def flows(draw_: st.DrawFn) -> tuple[Node, ...]:
    count = draw_(st.integers(1, 25))
    nodes = []
    for index in range(count):
        needs = draw_(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        nodes.append(node(f"n{index}", *(f"n{need}" for need in sorted(needs))))
    return tuple(nodes)


@given(flows())
def test_no_two_boxes_overlap_and_needs_stand_above(nodes):
    drawn = picture(*nodes)
    assert overlap(drawn) == []
    for edge in drawn.edges:
        assert place(drawn, edge.source)[1] < place(drawn, edge.target)[1]


@given(flows())
def test_everything_lies_inside_the_picture(nodes):
    drawn = picture(*nodes)
    for box in drawn.boxes:
        assert 0 <= box.x <= drawn.width - box.width
        assert 0 <= box.y <= drawn.height - box.height


@pytest.mark.parametrize("count", [1000])
def test_a_thousand_nodes_are_laid_out(count):
    nodes = [node("n0")] + [node(f"n{index}", f"n{(index - 1) // 2}") for index in range(1, count)]
    drawn = picture(*nodes)
    assert len(drawn.boxes) == count
    assert overlap(drawn) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("reach", [2, 25])
def test_a_dense_graph_is_laid_out_in_bounded_time(reach):
    """Each node needs the first one and those right before it: long edges pass very many ranks."""
    needs = [sorted({0, *range(max(0, index - reach), index)}) if index else [] for index in range(1000)]
    began = time.process_time()
    drawn = picture(*(node(f"n{index}", *(f"n{need}" for need in found)) for index, found in enumerate(needs)))
    assert time.process_time() - began < 20
    assert overlap(drawn) == []
    assert all(place(drawn, edge.source)[1] < place(drawn, edge.target)[1] for edge in drawn.edges[:: 97 * reach])
