"""Lay out a flow's graph as boxes and paths. Computed from the topology alone, never from a status.

Units are SVG user units (CSS pixels at scale 1). Ranks run from top to bottom; the ordering that keeps crossings few
comes from ``fast_sugiyama``. It is given numbers, never names: with names it now and then labels an unnamed point of a
long edge like one of the nodes.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter

from fast_sugiyama import from_edges

from sandbox_supervisor.protocol.flow import Flow, Node

BOX_WIDTH, BOX_HEIGHT = 162, 46
COLUMN, ROW = 178, 74  # distance between the centres of two neighbours
LEAST_WIDTH, LEAST_HEIGHT = 440, 420
LANE = 12  # least distance from a passing edge to what stands right of it
MARGIN = 8
LABEL = 10  # from the word "finally" down to its boxes
HALO = 4  # the ring around the chosen box
MAX_HOPS = 8000  # ranks that all edges pass together; beyond, the ordering takes minutes
BEND = 6  # radius of a corner
ARC = 46  # how far a rework's arc stands out to the left of the boxes, and from the next arc
PILL_WIDTH, PILL_HEIGHT = 76, 38
UNDER = 9  # how far below a rank an arc passes its boxes; edges pass lower
DOOR = 20  # from a box's left side to where such an arc leaves or enters it from below
SMALLEST = 0.75  # scale below which a large flow is not shrunk but scrolled


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One node; ``x`` and ``y`` are its upper left corner."""

    key: str
    x: int
    y: int
    width: int = BOX_WIDTH
    height: int = BOX_HEIGHT

    @property
    def centre(self) -> int:
        return self.x + self.width // 2

    @property
    def middle(self) -> int:
        return self.y + self.height // 2

    @property
    def bottom(self) -> int:
        return self.y + self.height

    # where the template puts things in the box
    @property
    def halo_x(self) -> int:
        return self.x - HALO

    @property
    def halo_y(self) -> int:
        return self.y - HALO

    @property
    def halo_width(self) -> int:
        return self.width + 2 * HALO

    @property
    def halo_height(self) -> int:
        return self.height + 2 * HALO

    @property
    def glyph_x(self) -> int:
        return self.x + 10

    @property
    def glyph_y(self) -> int:
        return self.y + 15

    @property
    def text_x(self) -> int:
        return self.x + 35

    @property
    def text_width(self) -> int:
        return self.width - 42

    @property
    def first_line(self) -> int:
        return self.y + 20

    @property
    def second_line(self) -> int:
        return self.y + 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A dependency: ``path`` is the line, ``head`` the arrow's point, both SVG path data."""

    source: str
    target: str
    path: str
    head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """A rework: from the node that asks back to the one that works again. ``pill_*`` is where its count is written."""

    source: str
    target: str
    max_rounds: int
    path: str
    head: str
    pill_x: int
    pill_y: int

    @property
    def pill_middle(self) -> int:
        return self.pill_x + PILL_WIDTH // 2

    @property
    def pill_first(self) -> int:
        return self.pill_y + 15

    @property
    def pill_second(self) -> int:
        return self.pill_y + 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    width: int
    height: int
    boxes: tuple[Box, ...]  # in definition order
    edges: tuple[Edge, ...]
    arcs: tuple[Arc, ...]
    finally_y: int | None  # where the band of ``finally`` nodes begins

    @property
    def frame(self) -> str:
        """Give the SVG view box; a small flow gets room around it, so that its boxes are not blown up."""
        width, height = max(self.width, LEAST_WIDTH), max(self.height, LEAST_HEIGHT)
        return f"{(self.width - width) // 2} 0 {width} {height}"

    @property
    def is_small(self) -> bool:
        return self.width < LEAST_WIDTH and self.height < LEAST_HEIGHT

    @property
    def shown_width(self) -> int:
        """Give the least width in CSS pixels at which the whole picture can still be read."""
        return round(self.width * SMALLEST)

    @property
    def shown_height(self) -> int:
        return round(max(self.height, LEAST_HEIGHT) * SMALLEST)


Point = tuple[float, float]


def draw(flow: Flow) -> Picture:
    """Lay out every node of ``flow``; the ``finally`` ones stand in a band of their own below the rest."""
    left = MARGIN + sum(ARC for node in flow.nodes if node.rework)
    left = max(left, MARGIN + PILL_WIDTH + BEND) if left > MARGIN else left
    boxes, bends = _main_part(flow.nodes, left)
    end = max((box.bottom for box in boxes.values()), default=MARGIN)
    finally_y = end + ROW - BOX_HEIGHT if flow.finally_ else None
    boxes |= _band(flow.finally_, _band_start(boxes, len(flow.finally_), left), (finally_y or end) + LABEL)
    edges = tuple(
        _edge(boxes[need], bends.get((need, node.key), ()), boxes[node.key])
        for node in flow.all_nodes()
        for need in node.needs
    )
    return Picture(
        width=max((box.x + box.width for box in boxes.values()), default=0) + MARGIN,
        height=max((box.bottom for box in boxes.values()), default=0) + MARGIN,
        boxes=tuple(boxes[node.key] for node in flow.all_nodes()),
        edges=edges,
        arcs=tuple(_arcs(flow.nodes, boxes, left)),
        finally_y=finally_y,
    )


def _main_part(nodes: tuple[Node, ...], left: int) -> tuple[dict[str, Box], dict[tuple[str, str], list[Point]]]:
    """Place the nodes of the graph, and give the points that long edges pass on their way."""
    edges = [(need, node.key) for node in nodes for need in node.needs]
    joined = {key for edge in edges for key in edge}
    loose = [node.key for node in nodes if node.key not in joined]
    places: dict[str | int, Point] = {key: (COLUMN * index, 0.0) for index, key in enumerate(loose)}
    hops: list[tuple[str | int, str | int]] = []
    offset = float(COLUMN * len(loose))
    for part in _parts(edges):
        places |= _upright(part.places, offset, [node.key for node in nodes])
        hops += part.hops
        offset += part.width + COLUMN
    at = {name: (round(left + x), round(MARGIN + y)) for name, (x, y) in places.items()}
    boxes = {node.key: Box(key=node.key, x=at[node.key][0], y=at[node.key][1]) for node in nodes}
    return boxes, _bends(edges, hops, {name: (x + BOX_WIDTH / 2, y + BOX_HEIGHT / 2) for name, (x, y) in at.items()})


@dataclass(frozen=True, slots=True)
class Part:
    """One connected part: where its nodes and the unnamed points of long edges stand, and what is joined to what."""

    places: list[tuple[str | int, Point]]
    hops: list[tuple[str | int, str | int]]
    width: float


def _parts(edges: list[tuple[str, str]]) -> list[Part]:
    """Rank and order the graph; every node stands below all that it needs."""
    ranks = _ranks(edges)
    if sum(ranks[node] - ranks[need] for need, node in edges) > MAX_HOPS:
        return [_in_rows(ranks)]
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    number = {name: at for at, name in enumerate(names)}

    def name_of(at: int | str) -> str | int:
        return names[at] if isinstance(at, int) and at < len(names) else at

    numbered = [(number[need], number[node]) for need, node in edges]
    return [
        Part(
            [(name_of(at), (float(x), float(y))) for at, (x, y) in places],
            [(name_of(start), name_of(end)) for start, end in hops or []],
            float(width),
        )
        for places, width, _, hops in (from_edges(numbered, vertex_spacing=COLUMN) if edges else ())
    ]


def _ranks(edges: list[tuple[str, str]]) -> dict[str, int]:
    """Give how many nodes stand above each at the least. The edges have no cycle."""
    needs: dict[str, list[str]] = defaultdict(list)
    for need, node in edges:
        needs[node].append(need)
    graph = TopologicalSorter(needs)
    ranks: dict[str, int] = {}
    for name in graph.static_order():
        ranks[name] = 1 + max((ranks[need] for need in needs.get(name, ())), default=-1)
    return ranks


def _in_rows(ranks: dict[str, int]) -> Part:
    """Place a graph that is too dense to be untangled in bounded time: row by row, its edges straight."""
    rows: dict[int, list[str]] = defaultdict(list)
    for name, rank in ranks.items():
        rows[rank].append(name)
    width = COLUMN * (max(map(len, rows.values())) - 1)
    places: list[tuple[str | int, Point]] = [
        (name, ((width - COLUMN * (len(row) - 1)) / 2 + COLUMN * index, float(-COLUMN * rank)))
        for rank, row in rows.items()
        for index, name in enumerate(row)
    ]
    return Part(places, [], float(width))


def _upright(part: list[tuple[str | int, Point]], offset: float, order: list[str]) -> dict[str | int, Point]:
    """Turn one connected part so that ranks go down, and neighbours stand in definition order where free to."""
    top = max(y for _, (_, y) in part)
    first, last = min(x for _, (x, _) in part), max(x for _, (x, _) in part)
    known = sorted((y, order.index(name), x) for name, (x, y) in part if isinstance(name, str))
    pairs = [(a, b) for a, b in itertools.pairwise(known) if a[0] == b[0]]
    mirrored = sum(1 if b[2] > a[2] else -1 for a, b in pairs) < 0
    return _apart(
        {name: (offset + (last - x if mirrored else x - first), (top - y) / COLUMN * ROW) for name, (x, y) in part}
    )


def _apart(places: dict[str | int, Point]) -> dict[str | int, Point]:
    """Push neighbours of one rank apart where the layout has put two boxes on one another (seen in dense graphs)."""
    moved: dict[str | int, Point] = {}
    by_rank: dict[float, list[tuple[float, str, str | int]]] = defaultdict(list)
    for name, (x, y) in places.items():
        by_rank[y].append((x, str(name), name))
    for y, rank in by_rank.items():
        free_from = -float("inf")
        for x, _, name in sorted(rank, key=lambda each: each[:2]):
            moved[name] = (max(x, free_from), y)
            free_from = moved[name][0] + (COLUMN if isinstance(name, str) else LANE)
    return moved


def _bends(
    edges: Iterable[tuple[str, str]], hops: Iterable[tuple[str | int, str | int]], at: dict[str | int, Point]
) -> dict[tuple[str, str], list[Point]]:
    """Follow each long edge over its unnamed points, which the layout numbers where nodes have names."""
    following: dict[str | int, list[str | int]] = defaultdict(list)
    for source, target in hops:
        following[source].append(target)
    found: dict[tuple[str, str], list[Point]] = {}
    for source in {source for source, _ in edges}:
        for step in following[source]:
            points: list[Point] = []
            while isinstance(step, int):
                points.append(at[step])
                step = following[step][0]  # noqa: PLW2901 - walks to the end of one edge
            found[source, step] = points
    return found


def _band_start(boxes: dict[str, Box], count: int, left: int) -> int:
    """Centre a row of ``count`` boxes below those that are there, but never left of the margin."""
    if not boxes:
        return left
    first, last = min(box.x for box in boxes.values()), max(box.x + box.width for box in boxes.values())
    return max(left, (first + last - count * COLUMN + COLUMN - BOX_WIDTH) // 2)


def _band(nodes: tuple[Node, ...], left: int, y: int) -> dict[str, Box]:
    return {node.key: Box(key=node.key, x=left + COLUMN * index, y=y) for index, node in enumerate(nodes)}


def _edge(source: Box, bends: Iterable[Point], target: Box) -> Edge:
    if target.y <= source.y:  # neighbours in the band of ``finally``
        across = f"M{source.x + source.width} {source.middle}H{target.x - 5}"
        return Edge(source=source.key, target=target.key, path=across, head=_head_right(target.x - 7, target.middle))
    points = [(float(source.centre), float(source.bottom)), *bends, (float(target.centre), float(target.y - 5))]
    path = f"M{points[0][0]:g} {points[0][1]:g}" + "".join(
        _step(before, after) for before, after in itertools.pairwise(points)
    )
    x, y = target.centre, target.y - 7
    return Edge(source=source.key, target=target.key, path=path, head=f"M{x - 4} {y}h8l-4 6z")


def _step(start: Point, end: Point) -> str:
    """Go down, across in the gap above the next rank, and down again, with round corners."""
    (x, y), (to_x, to_y) = start, end
    if abs(to_x - x) < 1:
        return f"V{to_y:g}"
    level = max(y + BEND, _gap_above(to_y))
    sign = 1 if to_x > x else -1
    bend = min(BEND, abs(to_x - x) / 2)
    return (
        f"V{level - bend:g}Q{x:g} {level:g} {x + sign * bend:g} {level:g}"
        f"H{to_x - sign * bend:g}Q{to_x:g} {level:g} {to_x:g} {level + bend:g}V{to_y:g}"
    )


def _gap_above(y: float) -> float:
    """Give the level of the gap over the rank that ``y`` (a box's top or middle) belongs to."""
    rank = round((y - MARGIN) / ROW)
    return MARGIN + rank * ROW - (ROW - BOX_HEIGHT) / 2


def _arcs(nodes: tuple[Node, ...], boxes: dict[str, Box], left: int) -> Iterable[Arc]:
    for index, node in enumerate(each for each in nodes if each.rework):
        assert node.rework is not None  # noqa: S101 - the generator keeps only those
        source, target = boxes[node.key], boxes[node.rework.node]
        x = left - ARC * (index + 1)
        start, low = _way_out(source, boxes)
        end, high, head = _way_in(target, boxes)
        yield Arc(
            source=node.key,
            target=node.rework.node,
            max_rounds=node.rework.max_rounds,
            path=f"{start}H{x + BEND}Q{x} {low} {x} {low - BEND}V{high + BEND}Q{x} {high} {x + BEND} {high}{end}",
            head=head,
            pill_x=max(2, x - PILL_WIDTH // 2),
            pill_y=(source.middle + target.middle - PILL_HEIGHT) // 2,
        )


def _way_out(source: Box, boxes: dict[str, Box]) -> tuple[str, int]:
    """Begin an arc at the box's left side, or from below where others stand left of it; give the level it goes at."""
    if not _has_left_neighbour(source, boxes):
        return f"M{source.x} {source.middle}", source.middle
    x, level = source.x + DOOR, source.bottom + UNDER
    return f"M{x} {source.bottom}V{level - BEND}Q{x} {level} {x - BEND} {level}", level


def _way_in(target: Box, boxes: dict[str, Box]) -> tuple[str, int, str]:
    """End an arc likewise: the path, the level it comes at, and the arrow's point."""
    if not _has_left_neighbour(target, boxes):
        return f"H{target.x - 10}", target.middle, _head_right(target.x - 11, target.middle)
    x, level = target.x + DOOR, target.bottom + UNDER
    return f"H{x - 2}Q{x} {level} {x} {level - 2}", level, f"M{x - 4} {target.bottom + 7}h8l-4 -6z"


def _has_left_neighbour(box: Box, boxes: dict[str, Box]) -> bool:
    return any(other.x < box.x and abs(other.y - box.y) < BOX_HEIGHT for other in boxes.values())


def _head_right(x: int, y: int) -> str:
    return f"M{x} {y - 4}v8l6-4z"
