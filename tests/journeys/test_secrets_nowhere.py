"""Invariant 14 on a whole product: no secret stands anywhere in any spelling, but in the files that are there for it.

The task's own command prints what it can reach; people and programs use every kind of key, also in vain.
"""

import base64
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.running_product import Product, product, repository, until
from tests.secret_scan import Scanner, spellings

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(600)]

FLOW = """
apiVersion: caisson/v1
kind: Flow
name: curious
nodes:
  - key: look
    command:
      run: |
        env; set
        cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | tee seen.txt
        git config --list --show-origin; ls -laR "$HOME" ..
    changes: keep
  - key: wait
    needs: [look]
    approval: {question: "Go on?", options: ["yes", "no"], wait_forever: true}
  - key: deliver
    needs: [wait]
    delivery: {change_request: {title: "{{ task.title }}"}}
"""

# Files of mode 0600 that exist to hold them. The specification of each task names its nonce, which is no secret.
KEPT = {
    ("secrets/client_token", "API token"),
    ("secrets/secret_key", "secret key"),
    ("secrets/token_pepper", "pepper"),
}


@pytest.fixture(scope="module")
def place():
    folder = Path(tempfile.mkdtemp(prefix="caisson-s-"))
    (folder / "flow.yaml").write_text(FLOW)
    with product(folder / "state") as made:
        yield made
    shutil.rmtree(folder, ignore_errors=True)


def secret_part(key: str) -> str:
    """The last part of ``prefix_id_secret``: the rest may be shown."""
    return key.rpartition("_")[2]


def tokens_of(place: Product, task_id: str) -> dict[str, str]:
    """The tokens of the sandbox, without what is no secret in them."""
    said = place.inside(
        "from tasks_app.models import Task\n"
        "from tasks_app.services.tokens import Audience, dial_token, task_token\n"
        f"task = Task.objects.get(pk={task_id!r})\n"
        "print(task_token(task), dial_token(task), task_token(task, Audience.MATERIALISE))"
    )
    names = ("task token", "dial token", "download token")
    return {name: token.rpartition(".")[2] for name, token in zip(names, said.split(), strict=True)}


def sign_in(browser: httpx.Client, link: str) -> None:
    """Use a link as people do: a form that comes from nowhere first, then the right way, then once more."""
    assert httpx.post(link, timeout=40, trust_env=False).status_code == 403
    browser.get(link)
    form = {"csrfmiddlewaretoken": browser.cookies["caisson_csrf"]}
    assert browser.post(link, data=form).status_code == 302
    assert browser.post(link, data=form | {"csrfmiddlewaretoken": browser.cookies["caisson_csrf"]}).status_code == 403


def misuse(place: Product, token: str) -> None:
    """Show right keys at wrong doors."""
    headers = {"Authorization": f"Bearer {token}"}
    for method, path in (("GET", "/internal/v1/spec"), ("POST", "/api/v1/tasks"), ("GET", "/api/v1/nothing")):
        answered = httpx.request(method, place.url + path, headers=headers, timeout=40, trust_env=False)
        assert answered.status_code >= 400


@pytest.fixture(scope="module")
def scanned(place: Product):
    """A scanner that has looked while the task ran and again after its end."""
    remote = repository(place.state.parent, {"README.md": "hello\n"})
    follower = place.begin("run", str(remote), "Look around", "--flow", str(place.state.parent / "flow.yaml"), "--json")
    try:
        task = until(lambda: waiting(place, follower), what="the approval is open")
        link = place.sign_in_link()
        second = place.post("/tokens", {"label": "ci", "scopes": ["read"]}, key="second").json()["token"]
        secrets = {
            **tokens_of(place, task["id"]),
            "sign-in link": secret_part(link),
            "API token": secret_part(place.token),
            "second API token": secret_part(second),
            "secret key": (place.state / "secrets" / "secret_key").read_text().strip(),
            "pepper": (place.state / "secrets" / "token_pepper").read_text().strip().partition(":")[2],
        }
        scanner = Scanner(secrets)
        for token in (second, place.token):
            misuse(place, token)
        with httpx.Client(base_url=place.url, timeout=40, trust_env=False) as browser:
            sign_in(browser, link)
            look_at_all(place, scanner, browser, task["id"])
            answer(place, task["id"])
            place.wait_for_status(task["id"], "completed")
            until(lambda: stored(place), what="snapshot stored")
            look_at_all(place, scanner, browser, task["id"])
        said, complained = follower.communicate(timeout=180)
        scanner.look("what the command said", (said + complained).encode())
    finally:
        follower.kill()
        follower.communicate()
    return scanner


def waiting(place: Product, follower: subprocess.Popen[str]) -> dict[str, Any] | None:
    assert follower.poll() is None, follower.communicate()[1]
    try:
        return next((task for task in place.tasks() if place.graph(task["id"])["requests"]), None)
    except (OSError, httpx.HTTPError):  # the console, or the sandbox, is still coming up
        return None


def answer(place: Product, task_id: str) -> None:
    (request,) = place.graph(task_id)["requests"]
    body = {"verb": "answer", "request": request["id"], "answer": {"option": request["options"][0]["id"]}}
    place.post(f"/tasks/{task_id}/commands", body, key="yes").raise_for_status()


def stored(place: Product) -> bool:
    return place.inside("from tasks_app.models import TaskSnapshot\nprint(TaskSnapshot.objects.count())") == "1"


def look_at_all(place: Product, scanner: Scanner, browser: httpx.Client, task_id: str) -> None:
    scanner.folder(place.state)
    scanner.processes()
    scanner.redis(place.state / "run" / "redis.sock")
    base = f"/api/v1/tasks/{task_id}"
    attempts = [each["id"] for each in place.graph(task_id)["attempts"]]
    paths = [base, *(f"{base}/{name}" for name in ("frozen", "events", "graph", "deliveries"))]
    paths += [f"{base}/attempts/{each}/{part}" for each in attempts for part in ("log", "files", "diff")]
    for path in (*paths, "/api/v1/tokens", "/api/v1/me", "/readyz", "/", f"/tasks/{task_id}"):
        answered = browser.get(path, follow_redirects=True)
        scanner.look(f"answer of {path}", answered.content + repr(answered.headers).encode())


def test_secrets_stand_in_the_files_made_for_them_and_nowhere_else(scanned: Scanner):
    assert scanned.hits == KEPT


def test_the_files_made_for_them_are_their_owners_alone(place: Product, scanned: Scanner):
    for name, _ in KEPT:
        assert (place.state / name).stat().st_mode & 0o777 == 0o600


def test_the_look_was_at_a_whole_product(scanned: Scanner):
    assert scanned.looked_at > 1000


VALUE = "0f" * 8 + "Zz_-.~ü"


@pytest.mark.parametrize(
    "hidden",
    [
        VALUE.encode(),
        VALUE.encode().hex().encode(),
        "".join(f"%{byte:02x}" for byte in VALUE.encode()).encode(),
        *(base64.b64encode(b"x" * shift + VALUE.encode() + b"tail") for shift in range(3)),
        *(base64.urlsafe_b64encode(b"x" * shift + VALUE.encode() + b"tail") for shift in range(3)),
    ],
)
def test_the_scanner_finds_a_value_in_every_spelling(hidden):
    scanner = Scanner({"it": VALUE})
    scanner.look("here", b"before" + hidden + b"after")
    scanner.look("there", b"before" + hidden[:12] + b"after")
    assert scanner.hits == {("here", "it")}


def test_the_scanner_looks_into_names_databases_and_packed_objects(tmp_path):
    value = "canary-" + "7d" * 12
    remote = repository(tmp_path / "git", {"file": value})
    with sqlite3.connect(tmp_path / "rows.sqlite3") as database:
        database.execute("CREATE TABLE t (a BLOB)")
        database.execute("INSERT INTO t VALUES (?)", ("x" * 5000 + value + "y" * 5000,))
    database.close()
    shutil.rmtree(tmp_path / "git" / "tree")
    subprocess.run(["git", "-C", str(remote), "gc", "-q"], check=True)
    (tmp_path / value).touch()
    scanner = Scanner({"it": value})
    scanner.folder(tmp_path)
    assert {where for where, _ in scanner.hits} >= {"name .", "git/origin.git", "rows.sqlite3 t"}


def test_no_spelling_of_a_value_is_too_short_to_mean_it():
    assert min(len(each) for each in spellings("0f" * 16)) >= 16
