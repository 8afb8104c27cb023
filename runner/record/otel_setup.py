"""Where spans and metrics go: the host's own OpenTelemetry, else OTLP over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import PluginError

MISSING = (
    "runner.record.otel needs OpenTelemetry: pip install 'slotrunner[otel]' "
    "(opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http)"
)
# The bounds the conventions advise for these two histograms.
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = tuple(4**n for n in range(14))


@dataclass(frozen=True, slots=True)
class Providers:
    """Who makes spans and metrics; those of `owned` are ours to shut down."""

    tracing: Any
    metering: Any
    owned: list[Any] = field(default_factory=list)


def providers(tracing: Any, metering: Any, environ: Mapping[str, str]) -> Providers:
    """Those given, else those the host has set up, else our own. `PluginError` without the extra."""
    try:
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError as error:
        raise PluginError(MISSING) from error
    if tracing is not None or metering is not None:
        return Providers(
            tracing or trace.get_tracer_provider(), metering or metrics.get_meter_provider()
        )
    tracing, metering = trace.get_tracer_provider(), metrics.get_meter_provider()
    owned: list[Any] = []
    if not isinstance(tracing, TracerProvider):
        owned.append(tracing := _own_tracing(environ))
    if not isinstance(metering, MeterProvider):
        owned.append(metering := _own_metering(environ))
    return Providers(tracing, metering, owned)


def instruments(meter: Any) -> tuple[Any, Any]:
    """The histograms of durations and of tokens."""
    duration = meter.create_histogram(
        "gen_ai.client.operation.duration",
        unit="s",
        description="How long model requests, tool calls and turns took.",
        explicit_bucket_boundaries_advisory=SECONDS,
    )
    tokens = meter.create_histogram(
        "gen_ai.client.token.usage",
        unit="{token}",
        description="Tokens of model requests.",
        explicit_bucket_boundaries_advisory=TOKENS,
    )
    return duration, tokens


def _own_tracing(environ: Mapping[str, str]) -> Any:
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider(resource=_resource(environ), shutdown_on_exit=False)
    if environ.get("OTEL_TRACES_EXPORTER", "otlp") != "none":
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise PluginError(MISSING) from error
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _own_metering(environ: Mapping[str, str]) -> Any:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader

    readers: list[MetricReader] = []
    if environ.get("OTEL_METRICS_EXPORTER", "otlp") != "none":
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        except ImportError as error:
            raise PluginError(MISSING) from error
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    resource = _resource(environ)
    return MeterProvider(resource=resource, metric_readers=readers, shutdown_on_exit=False)


def _resource(environ: Mapping[str, str]) -> Any:
    from opentelemetry.sdk.resources import Resource

    told = environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in told
    return Resource.create({} if named else {"service.name": "slotrunner"})
