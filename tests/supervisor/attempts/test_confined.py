import pytest

from sandbox_supervisor.attempts.confined import Unfit, problems, render

CONTEXT = {"task": {"brief": "Do it"}, "nodes": {"plan": {"result": {"files": ["a"], "ok": True}}}, "feedback": ""}


async def test_templates_see_what_they_are_given():
    rendered = await render({"prompt": "{{ task.brief }}: {{ nodes.plan.result.files }}", "plain": "x"}, CONTEXT)
    assert rendered == {"prompt": 'Do it: ["a"]', "plain": "x"}


async def test_values_are_shown_as_json():
    assert await render({"p": "{{ nodes.plan.result.ok }}"}, CONTEXT) == {"p": "true"}


@pytest.mark.parametrize(
    "template",
    [
        "{{ nodes.plan.result.missing }}",
        "{{ nothing }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ 'a' * 10**10 }}",
        "{% for i in range(99999) %}xxxxxxxxxx{% endfor %}",
        "{% if %}",
        "{{ 1 / 0 }}",
    ],
)
async def test_a_template_that_cannot_be_rendered_is_unfit(template):
    with pytest.raises(Unfit):
        await render({"prompt": template}, CONTEXT)


async def test_an_endless_template_ends():
    with pytest.raises(Unfit):
        await render({"p": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"}, {})


async def test_a_fitting_value_has_no_problems():
    assert await problems({"type": "object", "required": ["verdict"]}, {"verdict": "approve"}) == []


async def test_each_violation_is_named_with_its_place():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["verdict"]}
    found = await problems(schema, {"n": "x"})
    assert sorted(problem.split(":")[0] for problem in found) == ["$", "$.n"]


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"$ref": "http://127.0.0.1:9/schema"}, {"pattern": "^(a+)+$"}]
)
async def test_a_schema_that_cannot_judge_is_a_problem(schema):
    assert await problems(schema, "a" * 40 + "b")
