"""A package that is installed brings its provider along; nothing of Caisson is changed for it."""

from pathlib import Path

import pytest

from sandbox_providers.contract import InvalidSpec
from sandbox_providers.registry import ProviderSettings, provider_for
from sandbox_providers.scripted import ScriptedProvider, World


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay a package down as pip does: its modules, and beside them what it says of itself."""
    facts = tmp_path / "my_package-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[caisson.sandbox_providers]\nmine = my_package_of_a_test:MyProvider\n")
    (tmp_path / "my_package_of_a_test.py").write_text(
        "from sandbox_providers.scripted import ScriptedProvider\n\n\nclass MyProvider(ScriptedProvider):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_the_provider_of_an_installed_package_is_found_by_its_name(tmp_path: Path) -> None:
    found = provider_for("mine", ProviderSettings(state_dir=tmp_path))
    World.forget(tmp_path)
    assert type(found).__name__ == "MyProvider"
    assert isinstance(found, ScriptedProvider)


@pytest.mark.usefixtures("installed")
def test_an_unknown_provider_is_answered_with_those_that_packages_bring(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="local, mine, scripted"):
        provider_for("other", ProviderSettings(state_dir=tmp_path))
