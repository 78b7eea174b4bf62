import pytest

from tests.support import charts

HELMS = {"helm3": charts.helm3, "helm4": charts.helm4}


@pytest.fixture(params=["helm3", pytest.param("helm4", marks=pytest.mark.soak)])
def helm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The version of Helm with which the chart is rendered and installed."""
    version: str = request.param
    monkeypatch.setattr(charts, "helm", HELMS[version])
    return version
