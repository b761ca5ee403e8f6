from typing import Any

import pytest

from tasks_app.web.questions import Field, answer_of, fields_of

SCHEMA = {
    "type": "object",
    "required": ["colour"],
    "properties": {
        "colour": {"type": "string", "title": "Colour", "enum": ["red", "green"]},
        "amount": {"type": "integer", "default": 2},
        "share": {"type": "number"},
        "sure": {"type": "boolean"},
    },
}


def test_every_property_becomes_a_field_with_its_words():
    fields = {field.name: field for field in fields_of(SCHEMA)}
    assert fields["colour"] == Field(name="colour", label="Colour", choices=("red", "green"), default="", required=True)
    assert fields["amount"].default == 2
    assert not fields["amount"].required


@pytest.mark.parametrize("schema", [None, {}, {"properties": {}}, {"properties": "nonsense"}])
def test_a_question_without_properties_asks_for_a_text(schema):
    (field,) = fields_of(schema)
    assert (field.name, field.required) == ("text", True)


def test_what_was_filled_in_comes_back_with_the_types_of_the_schema():
    form = {"field.colour": "green", "field.amount": "3", "field.share": "0.5", "field.sure": "true", "csrf": "x"}
    assert answer_of(SCHEMA, form) == {"colour": "green", "amount": 3, "share": 0.5, "sure": True}


def test_an_empty_optional_field_is_left_out_and_an_unticked_box_is_false():
    assert answer_of(SCHEMA, {"field.colour": "red", "field.amount": ""}) == {"colour": "red", "sure": False}


def test_a_value_that_does_not_fit_is_left_for_the_check_to_refuse():
    assert answer_of(SCHEMA, {"field.colour": "red", "field.amount": "many"})["amount"] == "many"


def test_a_schema_of_a_stranger_cannot_make_a_form_without_end():
    many: dict[str, Any] = {"properties": {f"p{number}": {} for number in range(1000)}}
    assert len(fields_of(many)) == 50
