"""The endpoints of the HTTP API, one module for each group, each declared once.

To add an endpoint, write a function `async def name(api: ApiContext, request: Request) -> Response` in the module of
its group, and add an `ApiEndpoint` to the module's `ENDPOINTS`. Its docstring is the text of the reference: the first
paragraph is its row in the table of `docs/reference/http.md`. A new module is added to `endpoints()` in `openapi.py`.

The declaration makes the route. A request with a query parameter that the endpoint does not declare, or with one twice,
is refused. A route that publishes (`is_traced`) continues the trace of its client. `endpoint.py` has what endpoints
share: the bus, the gate of the access rules, the bounds and the memory. Ask the gate first, in every endpoint; the test
`tests/handlers/serve/test_access_matrix.py` fails until it has a cell for the route. `docs/contributing.md` names the
others.
"""
