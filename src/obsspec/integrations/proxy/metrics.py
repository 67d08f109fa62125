"""The figures of the proxy in Prometheus' words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from obsspec.integrations.proxy.figures import Figures
from obsspec.values import Outcome

CONTENT_TYPE = CONTENT_TYPE_LATEST
_COUNTERS = {
    "claimed": "Requests whose answer was already under way",
    "started": "Requests started before a client asked for them",
    "discarded": "Requests started early that no client asked for",
    "discarded_tokens": "Tokens sampled for those, as far as they were seen",
    "overflowed": "Requests started early that were dropped for the memory they took",
    "restarted": "Requests that a client asked for and that were made again, because the early one failed",
    "upstream_errors": "Requests that the engine did not answer to the end",
    "client_gone": "Clients that left before their answer was complete",
    "confused": "Requests that were passed on because they broke the rules of a conversation",
    "sessions_opened": "Conversations that began",
    "sessions_evicted": "Conversations that were forgotten to make room",
    "hidden_s": "Seconds of generation that were over when the client asked for them (in shadow mode: would have been)",
    "tool_s": "Seconds between an answer with a call and the request that followed",
    "generation_s": "Seconds of generation of requests that clients asked for",
}


class Metrics:
    """Made from the figures whenever they are asked for. `gauges`: name and what it says now."""

    def __init__(self, figures: Figures, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        self._figures = figures
        self._gauges = gauges
        self._registry = CollectorRegistry()
        self._registry.register(self)  # pyright: ignore[reportArgumentType]

    def collect(self) -> Iterator[Metric]:
        figures = self._figures
        requests = CounterMetricFamily("obsspec_requests", "Requests by what was done with them", labels=["kind"])
        requests.add_metric(["understood"], figures.asked)
        requests.add_metric(["passed_on"], figures.passed)
        yield requests
        outcomes = CounterMetricFamily("obsspec_turns", "Turns with a call by outcome", labels=["outcome"])
        for outcome in Outcome:
            outcomes.add_metric([outcome.value], figures.outcomes[outcome])
        yield outcomes
        said = CounterMetricFamily("obsspec_predictions", "Predictions that met the truth", labels=["source", "right"])
        for source, (right, all_) in figures.by_source.items():
            said.add_metric([source, "true"], right)
            said.add_metric([source, "false"], all_ - right)
        yield said
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(
                f"obsspec_{name.replace('_s', '_seconds') if name.endswith('_s') else name}",
                text,
                value=getattr(figures, name),
            )
        for name, (text, value) in self._gauges.items():
            yield GaugeMetricFamily(f"obsspec_{name}", text, value=value())

    def text(self) -> bytes:
        return generate_latest(self._registry)
