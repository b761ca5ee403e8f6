import pytest

from config import env
from config.env import Environment, EnvironmentProblem


def test_a_key_that_is_not_set_gives_the_default():
    assert Environment({}).get(env.PORT, 8765) == 8765


def test_an_empty_value_counts_as_not_set():
    assert Environment({"CAISSON_PORT": ""}).get(env.PORT, 8765) == 8765


@pytest.mark.parametrize(("text", "value"), [("1", True), ("Yes", True), ("off", False), ("FALSE", False)])
def test_booleans_are_read_in_their_usual_spellings(text, value):
    assert Environment({"CAISSON_DEBUG": text}).get(env.DEBUG, not value) is value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CAISSON_DEBUG", "maybe"),
        ("CAISSON_PORT", "eighty"),
        ("CAISSON_PORT", "0"),
        ("CAISSON_PORT", "65536"),
        ("CAISSON_LOCAL_ISOLATION", "docker"),
        ("CAISSON_LOG_LEVEL", "loud"),
    ],
)
def test_what_cannot_be_understood_is_refused_by_name(name, text):
    with pytest.raises(EnvironmentProblem, match=name):
        Environment({name: text}).get(env.KEYS[name], None)


def test_a_value_may_stand_in_a_file_and_is_stripped(tmp_path):
    (tmp_path / "key").write_text("  from-file\n")
    assert Environment({"CAISSON_SECRET_KEY_FILE": str(tmp_path / "key")}).get(env.SECRET_KEY, "") == "from-file"


def test_a_value_and_its_file_at_once_are_refused(tmp_path):
    with pytest.raises(EnvironmentProblem, match="both set"):
        Environment({"CAISSON_SECRET_KEY": "a", "CAISSON_SECRET_KEY_FILE": "b"}).get(env.SECRET_KEY, "")


def test_a_file_that_cannot_be_read_is_named():
    with pytest.raises(EnvironmentProblem, match="/nowhere/key"):
        Environment({"CAISSON_SECRET_KEY_FILE": "/nowhere/key"}).get(env.SECRET_KEY, "")


def test_lists_are_split_at_commas_and_trimmed():
    assert Environment({"CAISSON_HOSTS": " a , b,,"}).get(env.HOSTS, ()) == ("a", "b")
