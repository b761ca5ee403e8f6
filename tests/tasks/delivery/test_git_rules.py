"""Names and addresses are checked by rules of ours before Git sees them."""

import pytest

from sandbox_supervisor.protocol import git_rules
from sandbox_supervisor.protocol.git_rules import UrlKind, UrlRefused, parse_url, valid_branch, valid_commit, valid_ref


@pytest.mark.parametrize("name", ["caisson/tsk_1-fix", "main", "feature/übung", "v1.2", "a=b", "x+y", "日本", "_x"])
def test_an_ordinary_branch_name_is_allowed(name):
    assert valid_branch(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "-x", "a/-x", "a//b", "/a", "a/", "a..b", "a.lock", "a/b.lock/c", ".hidden", "a/.hidden", "a@{1}", "@",
        "HEAD", "refs/heads/main", "a b", "a\tb", "a\nb", "a\x00b", "a~1", "a^", "a:b", "a?", "a*", "a[", "a\\b",
        "$(id)", "`id`", "'x'", '"x"', "a;b", "a|b", "a&b", "a.", "\u202eabc", "x" * 201, "+main", ":main", "main\n",
    ],
)  # fmt: skip
def test_a_branch_name_that_git_or_a_shell_could_read_otherwise_is_refused(name):
    assert not valid_branch(name)


@pytest.mark.parametrize("ref", ["refs/heads/main", "refs/tags/v1"])
def test_full_branch_and_tag_names_are_refs(ref):
    assert valid_ref(ref)


@pytest.mark.parametrize("ref", ["main", "HEAD", "refs/pull/1/head", "refs/heads/", "refs/heads/-x", "--upload-pack=x"])
def test_other_names_are_no_refs(ref):
    assert not valid_ref(ref)


@pytest.mark.parametrize("text", ["a" * 39, "A" * 40, "0" * 40, "a" * 40 + "\n", "main", "", "a" * 41])
def test_only_full_lower_case_ids_are_commits(text):
    assert not valid_commit(text)
    assert valid_commit("a1" * 20)
    assert valid_commit("b2" * 32)


@pytest.mark.parametrize(
    ("text", "kind", "host"),
    [
        ("https://example.org/a/b.git", UrlKind.HTTPS, "example.org"),
        ("https://Example.org:8443/a", UrlKind.HTTPS, "example.org"),
        ("http://127.0.0.1:80/a", UrlKind.HTTP, "127.0.0.1"),
        ("ssh://git@example.org/a", UrlKind.SSH, "example.org"),
        ("git@example.org:a/b.git", UrlKind.SSH, "example.org"),
        ("/srv/a b/repo.git", UrlKind.PATH, ""),
        ("file:///srv/repo.git", UrlKind.PATH, ""),
    ],
)
def test_an_address_is_read_into_its_kind_and_host(text, kind, host):
    url = parse_url(text)
    assert (url.kind, url.host) == (kind, host)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("--upload-pack=touch /tmp/x", "url_malformed"),
        ("-oProxyCommand=x", "url_malformed"),
        ("ext::sh -c id", "url_malformed"),
        ("ext://x/y", "url_scheme"),
        ("git://example.org/a", "url_scheme"),
        ("ftp://example.org/a", "url_scheme"),
        ("file://host/a", "url_malformed"),
        ("ssh://-oProxyCommand=id/a", "url_malformed"),
        ("ssh://-x@example.org/a", "url_malformed"),
        ("git@-oProxyCommand=id:a", "url_malformed"),
        ("https://user:secret@example.org/a", "url_credentials"),
        ("https://token@example.org/a", "url_credentials"),
        ("https://example.org/a?x=1", "url_malformed"),
        ("https://example.org/a#x", "url_malformed"),
        ("https://example.org/", "url_malformed"),
        ("https:///a", "url_malformed"),
        ("https://exa mple.org/a", "url_malformed"),
        ("https://example.org:99999/a", "url_malformed"),
        ("https://example.org/-x", "url_malformed"),
        ("https://example.org/a\nb", "url_malformed"),
        ("/srv/../etc", "url_malformed"),
        ("relative/path", "url_malformed"),
        ("C:\\repo", "url_malformed"),
        ("", "url_malformed"),
        ("https://example.org/" + "a" * 2000, "url_malformed"),
    ],
)
def test_a_dangerous_or_unreadable_address_is_refused_with_a_reason(text, code):
    with pytest.raises(UrlRefused) as refusal:
        parse_url(text)
    assert refusal.value.code == code
    assert "secret" not in refusal.value.message


def test_the_environment_of_git_inherits_nothing(monkeypatch):
    monkeypatch.setenv("GIT_SSH_COMMAND", "touch /tmp/x")
    env = git_rules.environment(path="/usr/bin", tmp="/tmp", global_config="/dev/null")
    assert env["GIT_TERMINAL_PROMPT"] == "0"
    assert env["GIT_CONFIG_NOSYSTEM"] == "1"
    assert env["HOME"] == "/nonexistent"
    assert "touch" not in env["GIT_SSH_COMMAND"]
