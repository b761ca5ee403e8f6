from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sandbox_supervisor.protocol.flow import Node
from tests.supervisor.engine.scenario import Sandbox, repository, specification

Make = Callable[..., Sandbox]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Make]:
    """Make a sandbox for a list of nodes; whatever it started is ended afterwards."""
    made: list[Sandbox] = []

    def make(nodes: Sequence[Node], finally_: Sequence[Node] = (), *, files: Any = None, **more: Any) -> Sandbox:
        source, commit = repository(tmp_path / f"source{len(made)}", files)
        spec = specification(source, commit, nodes, finally_, **more)
        made.append(Sandbox(folder=tmp_path / f"sandbox{len(made)}", spec=spec))
        return made[-1]

    yield make
    for one in made:
        one.close()
