"""Questions to remotes end in time, never prompt, and their refusals have names."""

import socket
import threading
import time

import pytest

from tasks_app.remotes import RemoteProblem, ls_remote, open_remote
from tests.fixtures.bound_only import bound_only
from tests.git_remotes import git, reach
from workspaces_app.models import AllowedRoot, Workspace


def test_a_local_repository_shows_its_branches(project):
    assert ls_remote(reach(str(project.remote)))["refs/heads/main"] == project.base


def test_a_pattern_asks_for_one_branch_only(project):
    project.move("other", project.base)
    assert set(ls_remote(reach(str(project.remote)), "refs/heads/other")) == {"refs/heads/other"}


def test_a_remote_over_http_shows_its_branches(project, http_remote):
    assert ls_remote(reach(f"{http_remote.url}/remote.git"))["refs/heads/main"] == project.base


def test_a_folder_that_does_not_exist_is_missing(tmp_path):
    with pytest.raises(RemoteProblem) as problem:
        ls_remote(reach(str(tmp_path / "nothing")))
    assert (problem.value.code, problem.value.transient) == ("remote_missing", False)


def test_a_folder_that_is_no_repository_is_missing(tmp_path):
    with pytest.raises(RemoteProblem) as problem:
        ls_remote(reach(str(tmp_path)))
    assert problem.value.code == "remote_missing"


def test_a_remote_that_asks_for_a_password_is_refused_without_a_prompt(http_remote):
    http_remote.faults.ask_password = True
    began = time.monotonic()
    with pytest.raises(RemoteProblem) as problem:
        ls_remote(reach(f"{http_remote.url}/remote.git"))
    assert (problem.value.code, problem.value.transient) == ("remote_auth", False)
    assert time.monotonic() - began < 60  # a prompt would wait for ever


@pytest.mark.parametrize(
    ("status", "code", "transient"),
    [
        (403, "remote_forbidden", False),
        (404, "remote_missing", False),
        (429, "remote_unavailable", True),
        (500, "remote_unavailable", True),
        (503, "remote_unavailable", True),
    ],
)
def test_an_http_error_of_a_remote_has_a_name(http_remote, status, code, transient):
    http_remote.faults.status = status
    with pytest.raises(RemoteProblem) as problem:
        ls_remote(reach(f"{http_remote.url}/remote.git"))
    assert (problem.value.code, problem.value.transient) == (code, transient)


def test_a_redirect_is_not_followed(http_remote):
    http_remote.faults.redirect_to = "http://127.0.0.1:1"
    with pytest.raises(RemoteProblem) as problem:
        ls_remote(reach(f"{http_remote.url}/remote.git"))
    assert problem.value.code == "remote_redirects"


def test_a_port_where_nobody_listens_is_unreachable():
    with bound_only() as port, pytest.raises(RemoteProblem) as problem:
        ls_remote(reach(f"http://127.0.0.1:{port}/remote.git"))
    assert (problem.value.code, problem.value.transient) == ("remote_unreachable", True)


def test_a_server_that_never_answers_is_given_up_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/remote.git"
        began = time.monotonic()
        with pytest.raises(RemoteProblem) as problem:
            ls_remote(reach(url), timeout=0.5)
    assert (problem.value.code, problem.value.transient) == ("remote_timeout", True)
    assert time.monotonic() - began < 60  # nothing else ends it


def test_no_git_process_outlives_a_call_that_was_given_up():
    """The transport program that ``git`` starts is in its group; the server sees its connection close."""
    closed = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def serve() -> None:
            connection, _ = silent.accept()
            with connection:
                connection.settimeout(60)
                while connection.recv(65536):
                    pass
            closed.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(RemoteProblem):
            ls_remote(reach(f"http://127.0.0.1:{silent.getsockname()[1]}/r.git"), timeout=3)  # time enough to connect
        assert closed.wait(60)
        thread.join(60)


@pytest.fixture
def workspace(db) -> Workspace:
    return Workspace.objects.create(slug="w", name="W")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "[::1]", "0.0.0.0", "[fd00::1]", "2130706433"]
)
def test_a_private_address_is_refused_unless_it_is_named(settings, workspace, host):
    settings.PRIVATE_REMOTES = ()
    with pytest.raises(RemoteProblem) as problem:
        open_remote(f"https://{host}/remote.git", workspace=workspace)
    assert (problem.value.code, problem.value.transient) == ("remote_private", False)


def test_plain_http_is_refused_for_a_host_that_is_not_named(settings, workspace):
    settings.PRIVATE_REMOTES = ()
    with pytest.raises(RemoteProblem) as problem:
        open_remote("http://127.0.0.1/remote.git", workspace=workspace)
    assert problem.value.code == "url_scheme"


def test_a_named_private_host_may_be_used(workspace, project, http_remote):
    remote = open_remote(f"{http_remote.url}/remote.git", workspace=workspace)
    assert ls_remote(remote)["refs/heads/main"] == project.base


def test_a_local_path_outside_the_allowed_roots_is_refused(workspace, project):
    with pytest.raises(RemoteProblem) as problem:
        open_remote(str(project.remote), workspace=workspace)
    assert problem.value.code == "path_not_allowed"


def test_a_local_path_below_an_allowed_root_may_be_used(workspace, project):
    AllowedRoot.objects.create(workspace=workspace, path=str(project.remote.parent))
    assert ls_remote(open_remote(str(project.remote), workspace=workspace))["refs/heads/main"] == project.base


def test_a_link_that_leads_out_of_the_allowed_root_is_refused(workspace, project, tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    (root / "link").symlink_to(project.remote)
    AllowedRoot.objects.create(workspace=workspace, path=str(root))
    with pytest.raises(RemoteProblem) as problem:
        open_remote(str(root / "link"), workspace=workspace)
    assert problem.value.code == "path_not_allowed"


def test_hostile_configuration_of_a_remote_runs_nothing_when_it_is_asked(project, tmp_path):
    sentinel = tmp_path / "ran"
    for key in ("core.fsmonitor", "core.alternateRefsCommand", "uploadpack.packObjectsHook", "core.sshCommand"):
        git(project.remote, "config", key, f"touch {sentinel}")
    ls_remote(reach(str(project.remote)))
    assert not sentinel.exists()
