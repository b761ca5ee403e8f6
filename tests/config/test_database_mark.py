"""The stage on PostgreSQL runs the tests that use the database: all of them, found by what they ask for."""

import pytest


@pytest.fixture
def rows(db) -> None:
    """Stands for every fixture that needs the database itself."""


def marked(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("database") is not None


def test_a_test_without_the_database_is_not_marked(request):
    assert not marked(request)


@pytest.mark.django_db
def test_a_test_that_names_it_by_a_mark_is_marked(request):
    assert marked(request)


def test_a_test_that_needs_it_through_a_fixture_is_marked(rows, request):
    assert marked(request)


def test_a_test_that_needs_it_with_real_commits_is_marked(transactional_db, request):
    assert marked(request)


@pytest.mark.parametrize("name", ["rows", "transactional_db"])
def test_a_test_that_comes_to_it_unseen_fails(request, name):
    with pytest.raises(pytest.fail.Exception, match="must be named"):
        request.getfixturevalue(name)
