"""Every deliberate fault is caught by the check that it names, and that check finds nothing without the fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.core import checks
from tests.core.faults import FAULTS, Fault

CHECKS = sorted({fault.caught_by for fault in FAULTS}, key=lambda check: check.__name__)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_nothing_is_found_without_a_fault(check: Callable[[], list[str]]) -> None:
    assert check() == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_deliberate_fault_is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.patch(monkeypatch)
    found = fault.caught_by()
    assert any(problem.startswith(fault.finding) for problem in found), f"found only {found}"


def test_there_are_at_least_twelve_faults_and_every_check_has_one() -> None:
    assert len(FAULTS) >= 12
    assert checks.walks in CHECKS
    assert checks.episodes in CHECKS
