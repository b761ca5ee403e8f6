from pathlib import Path

import pytest

from workspaces_app.errors import Refused, Unavailable
from workspaces_app.remotes import Places, addresses_of, check_remote

PUBLIC = "93.184.216.34"


def check(text, *, resolves_to=(PUBLIC,), **places):
    return check_remote(text, places=Places(**places), resolve=lambda host: resolves_to)


@pytest.mark.parametrize(
    "text", ["https://forge.example/a/b.git", "ssh://git@forge.example:2222/a/b.git", "git@forge.example:a/b.git"]
)
def test_a_public_remote_is_allowed_as_it_stands(text):
    assert check(text).text == text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ext::sh -c id", "url_malformed"),
        ("--upload-pack=id", "url_malformed"),
        ("-oProxyCommand=id", "url_malformed"),
        ("git://forge.example/a.git", "url_scheme"),
        ("ftp://forge.example/a.git", "url_scheme"),
        ("fd::17/foo", "url_malformed"),
        ("https://user:pass@forge.example/a.git", "url_credentials"),
        ("https://token@forge.example/a.git", "url_credentials"),
        ("http://forge.example/a.git", "url_scheme"),
        ("https://forge.example/a.git\nx", "url_malformed"),
        ("ssh://-oProxyCommand=id/a.git", "url_malformed"),
        ("relative/path", "url_malformed"),
        ("", "url_malformed"),
    ],
)
def test_what_git_must_never_see_is_refused(text, code):
    with pytest.raises(Refused) as caught:
        check(text)
    assert caught.value.code == code


def test_a_refusal_does_not_repeat_the_credential():
    with pytest.raises(Refused) as caught:
        check("https://ana:hunter2@forge.example/a.git")
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.8", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "::1", "fe80::1", "fc00::1", "::ffff:10.0.0.1", "2002:7f00:0001::",
    ],
)  # fmt: skip
def test_a_host_that_resolves_to_a_private_address_is_refused(address):
    with pytest.raises(Refused) as caught:
        check("https://forge.example/a.git", resolves_to=(address,))
    assert caught.value.code == "remote_private"


def test_one_private_address_among_public_ones_is_enough_to_refuse():
    with pytest.raises(Refused):
        check("https://forge.example/a.git", resolves_to=(PUBLIC, "10.0.0.1"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1"])
def test_every_spelling_of_a_loopback_address_is_seen_through(host):
    with pytest.raises(Refused) as caught:
        check(f"https://{host}/a.git")
    assert caught.value.code == "remote_private"


def test_a_named_private_host_is_allowed_also_over_http():
    text = "http://git.internal:3000/a/b.git"
    assert check(text, resolves_to=("10.0.0.1",), private_hosts=frozenset({"git.internal"})).text == text


def test_an_unknown_host_is_said_to_be_unknown():
    with pytest.raises(Unavailable) as caught:
        addresses_of("no-such-host.invalid")
    assert caught.value.code == "remote_host_unknown"


def test_a_path_below_an_allowed_root_comes_back_real(tmp_path: Path):
    (tmp_path / "repo").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "repo")
    assert check(str(tmp_path / "link"), roots=(tmp_path,)).path == str(tmp_path / "repo")


def test_a_path_outside_every_root_is_refused(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    with pytest.raises(Refused) as caught:
        check(str(tmp_path / "out"), roots=(tmp_path / "in",))
    assert caught.value.code == "path_not_allowed"


def test_a_link_that_leads_out_of_the_root_is_followed_before_it_is_judged(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    with pytest.raises(Refused):
        check(str(tmp_path / "in" / "link"), roots=(tmp_path / "in",))


def test_a_sibling_whose_name_begins_like_the_root_is_outside(tmp_path: Path):
    (tmp_path / "repos").mkdir()
    (tmp_path / "repos-private").mkdir()
    with pytest.raises(Refused):
        check(str(tmp_path / "repos-private"), roots=(tmp_path / "repos",))


def test_a_file_address_is_a_path(tmp_path: Path):
    assert check(f"file://{tmp_path}", roots=(tmp_path,)).path == str(tmp_path)


def test_a_closed_folder_inside_a_root_stays_closed(tmp_path: Path):
    state = tmp_path / ".caisson"
    (state / "sandboxes").mkdir(parents=True)
    with pytest.raises(Refused):
        check(str(state / "sandboxes"), roots=(tmp_path,), closed=(state,))


def test_a_root_inside_a_closed_folder_is_open(tmp_path: Path):
    demo = tmp_path / ".caisson" / "demo"
    demo.mkdir(parents=True)
    assert check(str(demo), roots=(tmp_path, demo), closed=(tmp_path / ".caisson",)).path == str(demo)


def test_a_path_that_is_no_folder_is_named(tmp_path: Path):
    with pytest.raises(Refused) as caught:
        check(str(tmp_path / "gone"), roots=(tmp_path,))
    assert caught.value.code == "path_missing"
