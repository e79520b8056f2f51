"""The files of the page."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.paced import PacedFile
from lanebus.handlers.ui.page import Asset

__all__ = ("ENDPOINTS",)


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
    headers = {"Content-Type": asset.media_type, "Vary": "Accept-Encoding"}
    if not _takes_gzip(request.headers.get("accept-encoding", "")):
        return PacedFile(asset.content, headers, budget=api.budget, bounds=api.bounds)
    return PacedFile(asset.zipped, {**headers, "Content-Encoding": "gzip"}, budget=api.budget, bounds=api.bounds)


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
