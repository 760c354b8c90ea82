"""Both majors of Helm, and what they render, once per set of values."""

from __future__ import annotations

import functools

import pytest

from tests.support.chart_values import MATRIX
from tests.support.helm import PACKAGES, Helm, Rendered, find_helm


@functools.cache
def render_case(helm: str, case: str) -> Rendered:
    return find_helm(helm).render(MATRIX[case])


@pytest.fixture(params=sorted(PACKAGES))
def helm(request: pytest.FixtureRequest) -> Helm:
    return find_helm(request.param)


@pytest.fixture
def helm4() -> Helm:
    return find_helm("helm4")


@pytest.fixture(params=sorted(MATRIX))
def rendered(request: pytest.FixtureRequest) -> Rendered:
    """Each set of values, by the newer Helm."""
    return render_case("helm4", request.param)


@pytest.fixture
def everything() -> Rendered:
    return render_case("helm4", "everything")


@pytest.fixture
def defaults() -> Rendered:
    return render_case("helm4", "defaults")
