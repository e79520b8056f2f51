"""The files of the page."""

from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lanebus.handlers.serve.api.context import ApiContext
from lanebus.handlers.serve.api.endpoint import ApiEndpoint
from lanebus.handlers.serve.page import Asset
from lanebus.handlers.serve.transfer import PacedFile


async def index(api: ApiContext, request: Request) -> Response:
    """Return the page."""
    return _file(api, api.page.document, request)


async def static(api: ApiContext, request: Request) -> Response:
    """Return a file of the page; 404 if the page has no file of this name."""
    path = str(request.path_params["path"])
    if path not in api.page.assets:
        raise HTTPException(404)
    return _file(api, api.page.assets[path], request)


async def favicon(api: ApiContext, request: Request) -> Response:
    """Return the icon for browsers that request it at the root."""
    return _file(api, api.page.assets["favicon.svg"], request)


def _file(api: ApiContext, asset: Asset, request: Request) -> Response:
    kept = {"ETag": asset.tag, "Cache-Control": asset.caching, "Vary": "Accept-Encoding"}
    if _names_tag(request.headers.getlist("if-none-match"), asset.tag):
        return Response(status_code=304, headers=kept)
    headers = {"Content-Type": asset.media_type, **kept}
    if not _takes_gzip(request.headers.get("accept-encoding", "")):
        return PacedFile(asset.content, headers, budget=api.budget, bounds=api.bounds)
    return PacedFile(asset.zipped, {**headers, "Content-Encoding": "gzip"}, budget=api.budget, bounds=api.bounds)


def _names_tag(fields: Sequence[str], tag: str) -> bool:
    """Return whether `If-None-Match` names a tag, weak or not: a proxy that compresses again may change that."""
    named = {each.strip().removeprefix("W/") for field in fields for each in field.split(",")}
    return bool({"*", tag.removeprefix("W/")} & named)


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.split(","):
        coding, _, quality = each.partition(";")
        if coding.strip().lower() == "gzip":
            return quality.replace(" ", "").lower() not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


ENDPOINTS = (
    ApiEndpoint(path="/", handler=index, is_file=True),
    ApiEndpoint(path="/static/{path:path}", handler=static, is_file=True),
    ApiEndpoint(path="/favicon.ico", handler=favicon, is_file=True),
)
