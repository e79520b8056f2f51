"""The files of the page."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.page import Asset

__all__ = ("ENDPOINTS",)


async def index(api: ApiContext, request: Request) -> Response:
    """Return the page."""
    del request
    return _file(api.page.document)


async def static(api: ApiContext, request: Request) -> Response:
    """Return a file of the page; 404 if the page has no file of this name."""
    path = str(request.path_params["path"])
    if path not in api.page.assets:
        raise HTTPException(404)
    return _file(api.page.assets[path])


async def favicon(api: ApiContext, request: Request) -> Response:
    """Return the icon for browsers that request it at the root."""
    del request
    return _file(api.page.assets["favicon.svg"])


def _file(asset: Asset) -> Response:
    return Response(asset.content, headers={"Content-Type": asset.media_type})


ENDPOINTS = (
    ApiEndpoint(path="/", handler=index, is_file=True),
    ApiEndpoint(path="/static/{path:path}", handler=static, is_file=True),
    ApiEndpoint(path="/favicon.ico", handler=favicon, is_file=True),
)
