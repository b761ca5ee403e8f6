"""The kit itself: it finds what is broken, says what is not offered, and can hold a plugin of anybody's."""

import subprocess
import sys

import pytest

from sandbox_providers.conformance.__main__ import harness_of, main
from sandbox_providers.conformance.cases import Verdict, all_cases, judge
from sandbox_providers.conformance.harness import Harness
from sandbox_providers.conformance.scripted import ScriptedHarness
from sandbox_providers.contract import Observation, SandboxRef, State, Termination
from sandbox_providers.scripted import ScriptedProvider
from tests.sandbox_folder import ROOT

CASES = {case.name: case for case in all_cases()}


def harness_with(**wrong) -> type[Harness]:
    """Give the scripted harness with a provider that does something differently."""
    provider = type("Wrong", (ScriptedProvider,), wrong)

    class WrongHarness(ScriptedHarness):
        def __init__(self):
            super().__init__()
            self.provider = self.scripted = provider(self._settings)

        def again(self):
            return provider(self._settings)

    return WrongHarness


def verdict(harness: type[Harness], case: str) -> Verdict:
    made = harness()
    try:
        return judge(CASES[case], made).verdict
    finally:
        made.close()


def test_an_accident_inside_a_plugin_breaks_its_case_and_not_the_run():
    def stumble(self, ref):
        raise KeyError("no such pod")

    made = harness_with(observe=stumble)()
    judgement = judge(CASES["a_sandbox_that_was_never_created_is_absent"], made)
    made.close()
    assert (judgement.verdict, judgement.why) == (Verdict.BROKEN, "KeyError: 'no such pod'")


def resurrect(self, spec, secrets):
    box = self.world.boxes.get(spec.name)
    if box is not None and not box.running:
        del self.world.boxes[spec.name]
    return ScriptedProvider._create(self, spec, secrets)


def guess_lost(self, ref):
    if self.world.down:
        return Observation(state=State.LOST, reason="sandbox_lost", authoritative=True)
    return ScriptedProvider.observe(self, ref)


def terminate_by_name(self, ref, *, reason):
    return ScriptedProvider.terminate(self, SandboxRef(**(ref.to_json() | {"uid": ""})), reason=reason)


def terminate_in_words_only(self, ref, *, reason):
    return Termination.CONFIRMED


def clean_up_without_leave(self, ref, authority):
    box = self._box(ref)
    return ScriptedProvider.clean_up(
        self, ref, type(authority)(task=box.spec.task_id, reason="x") if box else authority
    )


@pytest.mark.parametrize(
    ("wrong", "case"),
    [
        ({"_create": resurrect}, "an_ended_sandbox_is_never_started_again"),
        ({"_create": resurrect}, "a_terminated_sandbox_cannot_be_resumed"),
        ({"observe": guess_lost}, "a_stopped_provider_is_no_verdict"),
        ({"terminate": terminate_by_name}, "terminate_never_hits_a_successor"),
        ({"terminate": terminate_in_words_only}, "clean_up_removes_everything"),
        ({"clean_up": clean_up_without_leave}, "clean_up_needs_leave_for_this_very_task"),
        ({"withdraw_secret": lambda self, ref: None}, "withdrawing_the_secret_leaves_none_and_may_be_repeated"),
        ({"list_owned": lambda self: iter(())}, "sandboxes_nobody_asks_for_are_listed_and_left_alone"),
    ],
)
def test_a_provider_that_breaks_the_contract_is_found_out(wrong, case):
    assert verdict(ScriptedHarness, case) is Verdict.HOLDS
    assert verdict(harness_with(**wrong), case) is Verdict.BROKEN


def test_a_harness_without_verbs_is_not_offered_the_cases_that_need_them():
    class Bare(Harness):
        name = "bare"

        def __init__(self):
            super().__init__()
            self.scripted = ScriptedHarness()
            self.provider, self.image_digest = self.scripted.provider, self.scripted.image_digest

        def close(self):
            self.scripted.close()

    assert verdict(Bare, "a_killed_instance_is_lost_and_leaves_nothing_running") is Verdict.NOT_OFFERED
    assert verdict(Bare, "create_returns_an_identity") is Verdict.HOLDS


def test_case_names_are_unique_and_many():
    assert len(CASES) == len(all_cases()) >= 50


def test_the_report_has_a_line_per_case_and_a_sum():
    done = subprocess.run(
        [sys.executable, "-m", "sandbox_providers.conformance", "scripted"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert len(lines) == len(CASES) + 1
    assert lines[-1].split(", ")[1] == "0 broken"


def test_a_broken_case_is_an_exit_code(monkeypatch, capsys):
    wrong = harness_with(observe=guess_lost)
    monkeypatch.setattr("sandbox_providers.conformance.__main__.harness_of", lambda _name: wrong)
    assert main(["anything"]) == 1
    assert "broken       a stopped provider is no verdict" in capsys.readouterr().out


def test_a_harness_of_ones_own_is_named_by_module_and_callable():
    found = harness_of("sandbox_providers.conformance.scripted:ScriptedHarness")
    assert found is ScriptedHarness


@pytest.mark.parametrize("name", ["", "unknown", "no.such.module:Harness", "sandbox_providers.contract:Nothing"])
def test_a_harness_that_cannot_be_found_is_a_usage_error(name, capsys):
    assert main([name]) == 2
    assert capsys.readouterr().err
