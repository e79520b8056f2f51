"""OpenTelemetry traces of a bus and its agents: the extra `otel`.

    async with Bus.open(tracing=otel_tracing()) as bus:
        ...

One trace leads from an HTTP request through the log into a worker, its model calls, its tools and its sub-agents. Start
with `otel_tracing.py`; `names.py` has every name of a span and an attribute. Importing this package imports no
OpenTelemetry package, and the package needs only `opentelemetry-api`: a program chooses the SDK and the exporter.
"""
