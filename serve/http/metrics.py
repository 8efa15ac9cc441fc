"""What Prometheus reads: counters and histograms of one server, in a registry of its own."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from vela.graphs import errors
from vela.serve import answers
from vela.serve.batching import BatchedForward
from vela.serve.forward import Forward
from vela.serve.http.exchange import Exchange
from vela.serve.model import ServedModel
from vela.serve.reading import Reading

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Seconds; from a millisecond on a GPU to a 32K-token document on a CPU.
DURATIONS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0)
# Tokens; the default ladder of buckets and what lies beyond it.
LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


class Metrics:
    """Every metric of the server; names are stable."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "vela_requests", "Requests by route, model and status.", ("route", "model", "code"), registry=registry
        )
        self.duration = Histogram(
            "vela_request_duration_seconds", "Whole requests.", ("route",), registry=registry, buckets=DURATIONS_S
        )
        self.queue = Histogram(
            "vela_queue_seconds", "Waiting for the lane.", ("model",), registry=registry, buckets=DURATIONS_S
        )
        self.infer = Histogram(
            "vela_infer_seconds", "Forwards of a request.", ("model", "ep"), registry=registry, buckets=DURATIONS_S
        )
        self.input_tokens = Histogram(
            "vela_input_tokens",
            "Tokens of an input, as far as read.",
            ("model",),
            registry=registry,
            buckets=LENGTHS,
        )
        self.pad_tokens = Counter("vela_pad_tokens", "Tokens that only filled a bucket.", ("model",), registry=registry)
        self.windows = Counter("vela_windows", "Windows that ran.", ("model",), registry=registry)
        self.truncated = Counter("vela_truncated", "Inputs that were cut, as asked.", ("model",), registry=registry)
        self.rejected = Counter("vela_rejected", "Requests refused before they ran.", ("reason",), registry=registry)
        self.failed_items = Counter(
            "vela_failed_items", "Inputs without an answer, by error code.", ("model", "code"), registry=registry
        )
        self.nonfinite = Counter("vela_nonfinite", "Outputs that were not usable.", ("model",), registry=registry)
        self.cancelled = Counter("vela_cancelled", "Requests whose client went away.", registry=registry)
        self.queue_tokens = Gauge("vela_queue_tokens", "Tokens that wait for the lane.", registry=registry)
        self.ready = Gauge("vela_model_ready", "1 while the model answers.", ("model",), registry=registry)

    def count(
        self,
        model: ServedModel,
        exchange: Exchange,
        forwards: Sequence[Forward | BatchedForward],
        readings: Sequence[Reading | errors.ItemError],
        results: Sequence[answers.Answer | answers.FailedAnswer],
    ) -> None:
        """Count one answered request of a model."""
        name, timing_ms = model.name, exchange.timing_ms()
        self.queue.labels(name).observe(timing_ms["queue"] / 1000)
        self.infer.labels(name, model.device.provider).observe(timing_ms["forward"] / 1000)
        self.pad_tokens.labels(name).inc(sum(forward.pads for forward in forwards))
        for reading in readings:
            if isinstance(reading, Reading):
                self.input_tokens.labels(name).observe(reading.report.tokens)
                self.windows.labels(name).inc(len(reading.slices))
                self.truncated.labels(name).inc(reading.report.truncated)
        for result in results:
            if isinstance(result, answers.FailedAnswer):
                self.failed_items.labels(name, result.error.code).inc()
                self.nonfinite.labels(name).inc(result.error.code == "invalid_model_output")

    def render(self) -> bytes:
        """Give the exposition text."""
        return generate_latest(self._registry)
