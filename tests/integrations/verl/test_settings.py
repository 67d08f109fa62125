"""The parts that need no verl: fields, versions, the identity of requests, sums."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from obsspec.integrations.verl.requests import Request, sampling_of
from obsspec.integrations.verl.settings import VerlSettings
from obsspec.integrations.verl.statistics import statistics, summary
from obsspec.integrations.verl.versions import check_verl
from obsspec.speculation.trace import SpeculationReport
from obsspec.values import ConfigError


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"dept": 2}, "dept: unknown; the fields are breadth"),
        ({"depth": True}, "depth: must be a int, got True"),
        ({"gate": "no"}, "gate: must be a bool"),
        ({"depth": 0}, "depth: must be above 0, got 0"),
        ({"predict_timeout_s": -1}, "predict_timeout_s: must be above 0"),
        ({"world_model_url": "localhost:8000", "world_model_name": "m"}, "must begin with http"),
        ({"world_model_url": "http://localhost:8000"}, "give both or neither"),
        ({"memory_path": "memory.sqlite"}, "must be an absolute path"),
        ({"transitions": "log"}, "transitions: 'log' must be an absolute path"),
        ({"memory_path": "/tmp/m", "memory": False}, "needs memory: true"),
        ({"rules": False, "memory": False}, "nothing would predict"),
    ],
)
def test_a_wrong_field_is_named_with_its_fix(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as raised:
        VerlSettings.from_fields(fields)
    assert "\n" not in str(raised.value)


def test_a_number_of_seconds_may_be_whole() -> None:
    assert VerlSettings.from_fields({"predict_timeout_s": 2}).predict_timeout_s == 2


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("0.9.1", True),
        ("0.9.12", True),
        ("0.9.1+cu130", True),
        ("0.9.0", False),
        ("0.9.1rc1", False),
        ("0.9", False),
        ("0.10.0", False),
        ("1.9.1", False),
        ("0.9.dev3", False),
    ],
)
def test_only_tested_versions_of_verl_are_accepted(
    monkeypatch: pytest.MonkeyPatch, version: str, accepted: bool
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _name: version)
    if accepted:
        check_verl()
    else:
        with pytest.raises(ConfigError, match=r"is not supported: install 'verl>=0\.9\.1,<0\.10'"):
            check_verl()


def test_without_verl_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(ConfigError, match=r"pip install 'obsspec\[verl\]'"):
        check_verl()


def test_a_request_is_known_by_every_sampling_field_and_not_by_its_name() -> None:
    params = {"temperature": 1.0, "top_k": -1, "logprobs": True}
    one = sampling_of(Request("a", params))
    assert one == sampling_of(Request("b", dict(reversed(params.items()))))
    assert hash(one) == hash(sampling_of(Request("b", params)))
    for name in params:
        assert one != sampling_of(Request("a", params | {name: 0.5}))
    assert one != sampling_of(Request("a", params | {"seed": 1}))


@pytest.mark.parametrize("name", ["image_data", "video_data", "audio_data", "mm_processor_output"])
def test_a_request_with_media_is_equal_to_nothing_else(name: str) -> None:
    request = Request("a", {}, {name: ["picture"]})
    assert sampling_of(request) == sampling_of(request)
    assert sampling_of(request) != sampling_of(Request("a", {}, {name: ["picture"]}))
    assert sampling_of(Request("a", {}, {name: None})) == sampling_of(Request("a", {}))


def test_a_step_sums_its_rollouts_and_takes_the_deepest() -> None:
    nothing = statistics(SpeculationReport())
    one = nothing | {"match": 3.0, "rollback": 1.0, "realized_depth": 2.0}
    other = nothing | {"cancel": 2.0, "realized_depth": 1.0}
    found = summary([one, other, None])
    assert found["obsspec/match"] == 3.0
    assert found["obsspec/match_share"] == 0.5
    assert found["obsspec/realized_depth"] == 2.0
    assert summary([None, None]) == {}
