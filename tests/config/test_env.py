import pytest

from config import env
from config.databases import database
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
        ("CAISSON_STATE_DIR", "~nobody-of-this-name/state"),
        ("CAISSON_HOSTS", " , "),
        ("CAISSON_PROVIDERS", ","),
        ("CAISSON_ORIGINS", ","),
        ("CAISSON_ORIGINS", "*"),
        ("CAISSON_ORIGINS", "https://*.example.org"),
        ("CAISSON_ORIGINS", "example.org"),
        ("CAISSON_ORIGINS", "https://example.org/"),
        ("CAISSON_ORIGINS", "https://example.org; script-src *"),
        ("CAISSON_ORIGINS", "http://localhost:8765,ftp://example.org"),
        ("CAISSON_TOKEN_PEPPER", "abc"),
        ("CAISSON_TOKEN_PEPPER", "k1:"),
        ("CAISSON_TOKEN_PEPPER", "k1:" + "0" * 62),
        ("CAISSON_TOKEN_PEPPER", "k1:" + "xy" * 32),
        ("CAISSON_TOKEN_PEPPER", f"k1:{'0' * 64},k1:{'1' * 64}"),
        ("DATABASE_URL", "mysql://a/b"),
        ("DATABASE_URL", "nonsense"),
        ("REDIS_URL", "localhost:6379"),
    ],
)
def test_what_cannot_be_understood_is_refused_by_name(name, text):
    with pytest.raises(EnvironmentProblem, match=name):
        Environment({name: text}).get(env.KEYS[name], None)


@pytest.mark.parametrize("name", ["CAISSON_TOKEN_PEPPER", "DATABASE_URL", "REDIS_URL"])
def test_a_secret_that_cannot_be_understood_is_not_repeated(name):
    with pytest.raises(EnvironmentProblem) as caught:
        Environment({name: "swordfish"}).get(env.KEYS[name], None)
    assert "swordfish" not in str(caught.value)


def test_a_ring_of_peppers_is_read_in_its_order():
    text = f"new:{'a' * 64}, old:{'b' * 64}"
    assert Environment({"CAISSON_TOKEN_PEPPER": text}).get(env.TOKEN_PEPPER, ()) == (
        ("new", "a" * 64),
        ("old", "b" * 64),
    )


def test_origins_may_name_hosts_ports_and_addresses():
    text = "https://Caisson.example.org,http://10.0.0.5:8765,http://[::1]:80"
    assert Environment({"CAISSON_ORIGINS": text}).get(env.ORIGINS, ()) == (
        "https://caisson.example.org",
        "http://10.0.0.5:8765",
        "http://[::1]:80",
    )


@pytest.mark.parametrize(
    "url", ["postgres://u:swordfish@h:x/db", "postgres://u:swordfish@h:99999/db", "postgres://u:swordfish@h",
            "sqlite:///", "sqlite:///:memory:"],
)  # fmt: skip
def test_a_database_that_cannot_be_meant_is_refused_without_its_password(tmp_path, url):
    with pytest.raises(EnvironmentProblem, match="DATABASE_URL") as caught:
        database(url, tmp_path)
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "engine", "name"),
    [("sqlite:////srv/x.db", "sqlite3", "/srv/x.db"), ("postgres://u:p@h/db", "postgresql", "db"),
     ("postgresql://h:5432/db", "postgresql", "db")],
)  # fmt: skip
def test_a_database_of_its_own_may_be_named(tmp_path, url, engine, name):
    found = database(url, tmp_path)
    assert (found["ENGINE"], found["NAME"]) == (f"django.db.backends.{engine}", name)


@pytest.mark.parametrize(("content", "told"), [(b" \n", "is empty"), (b"\xff\xfe", "no UTF-8")])
def test_a_file_that_holds_no_value_is_refused(tmp_path, content, told):
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(EnvironmentProblem, match=told):
        Environment({"CAISSON_SECRET_KEY_FILE": str(tmp_path / "key")}).get(env.SECRET_KEY, "")


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
