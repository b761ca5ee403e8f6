import pytest

from registry_app.flows.compiler import compile_flow, references_of, worst_case_of
from sandbox_supervisor.protocol import codec
from sandbox_supervisor.protocol.flow import Flow


def compiled(body):
    return compile_flow(f"apiVersion: caisson/v1\nkind: Flow\nname: x\n{body}")


def case(body):
    return compiled(body).worst_case


def test_a_node_may_be_tried_once_and_twice_more_for_the_infrastructure():
    assert case("nodes: [{key: a, command: {run: make}}]").attempts == {"a": 3}


def test_retries_of_both_budgets_add_up():
    found = case("nodes: [{key: a, command: {run: make}, retry: {limit: 3, infra_limit: 1}}]")
    assert found.attempts == {"a": 5}


def test_an_approval_is_asked_once():
    assert case("nodes: [{key: a, approval: {question: x, timeout: 1h}}]").attempts == {"a": 1}


REWORK = """
defaults: {retry: {infra_limit: 0}, timeout: {attempt: 10m}}
nodes:
  - {key: plan, command: {run: make}}
  - {key: code, needs: [plan], command: {run: make}}
  - {key: side, needs: [plan], command: {run: make}}
  - key: review
    needs: [code, side]
    command: {run: make, result: {type: object, properties: {ok: {type: boolean}}}}
    rework: {node: code, when: {result.ok: false}, max_rounds: 2}
finally:
  - {key: sweep, command: {run: make}}
"""


def test_rework_repeats_its_target_and_what_depends_on_it_and_nothing_else():
    assert case(REWORK).attempts == {"plan": 1, "code": 3, "side": 1, "review": 3, "sweep": 1}


def test_the_longest_path_counts_every_round_and_the_end():
    found = case(REWORK)
    assert found.longest_path == (1 + 3 + 3 + 1) * 600
    assert found.one_by_one == (1 + 3 + 1 + 3 + 1) * 600


def test_two_reworks_of_one_node_add_up():
    body = REWORK.replace(
        "finally:",
        """  - key: audit
    needs: [review]
    command: {run: make, result: {type: object, properties: {ok: {type: boolean}}}}
    rework: {node: code, when: {result.ok: false}, max_rounds: 5}
finally:""",
    )
    assert case(body).attempts["code"] == 1 + 2 + 5


def test_a_node_timeout_caps_all_tries_of_a_generation():
    found = case("nodes: [{key: a, command: {run: make}, retry: {limit: 9}, timeout: {attempt: 1h, node: 2h}}]")
    assert found.longest_path == 7200


def test_without_a_timeout_an_attempt_has_an_hour():
    found = case("nodes: [{key: a, command: {run: make}, retry: {infra_limit: 0}}]")
    assert found.longest_path == 3600


def test_pauses_between_tries_count():
    retry = "retry: {limit: 2, infra_limit: 0, backoff: 10s}"
    body = f"nodes: [{{key: a, command: {{run: make}}, {retry}, timeout: {{attempt: 1m}}}}]"
    assert case(body).longest_path == 3 * 60 + 10 + 20


def test_who_may_wait_for_a_person_is_named():
    body = """
nodes:
  - {key: quiet, agent: {driver: d, prompt: x, permissions: allow}}
  - {key: asks, agent: {driver: d, prompt: x}}
  - {key: gate, approval: {question: x, wait_forever: true}}
"""
    assert case(body).waits_for_people == ("asks", "gate")


def test_the_worst_case_of_a_stored_flow_is_that_of_its_file():
    found = compiled(REWORK)
    stored = codec.decode(found.canonical, Flow)
    assert worst_case_of(stored) == found.worst_case


def test_references_name_who_wants_them_once():
    body = """
defaults: {agent: {driver: opencode, model: main}}
nodes:
  - {key: a, agent: {prompt: x, skills: [s], resources: [r]}}
  - {key: b, agent: {prompt: x, driver: other, extensions: [e]}}
"""
    found = [(str(one.kind), one.name, one.wanted_by) for one in references_of(compiled(body).flow)]
    assert found == [
        ("driver", "opencode", ("a",)),
        ("driver", "other", ("b",)),
        ("extension", "e", ("b",)),
        ("model", "main", ("a", "b")),
        ("resource", "r", ("a",)),
        ("skill", "s", ("a",)),
    ]


@pytest.mark.parametrize("comment", ["# hello\n", "\n\n"])
def test_the_digest_is_that_of_the_meaning_not_of_the_text(comment):
    body = "nodes: [{key: a, command: {run: make}}]"
    assert compiled(comment + body).digest == compiled(body).digest


def test_the_digest_differs_when_the_meaning_does():
    assert (
        compiled("nodes: [{key: a, command: {run: make}}]").digest
        != compiled("nodes: [{key: a, command: {run: mak}}]").digest
    )


def test_the_canonical_bytes_are_what_the_digest_stands_for():
    from hashlib import sha256

    found = compiled("nodes: [{key: a, command: {run: make}}]")
    assert found.digest == "sha256:" + sha256(found.canonical).hexdigest()
    assert codec.canonical(codec.decode(found.canonical, Flow)) == found.canonical
