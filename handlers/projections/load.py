"""Find a projection by its name, for the command line."""

from typing import cast

from lanebus.handlers.load import TargetNotFound, load_object
from lanebus.handlers.projections.errors import ProjectionNotFound
from lanebus.handlers.projections.projection import Projection

__all__ = ("find_projection",)


def find_projection(target: str) -> Projection[object]:
    """Return the projection at `module:attribute` or `path/to/file.py:attribute`.

    Modules are also searched for in the current directory. A file may import modules of its own directory.

    Raises:
        ProjectionNotFound: `target` is not written like that, its module, file or attribute does not exist, or the
            attribute is no projection.
        InvalidProjection: the module defines a projection that cannot work.
        Exception: the module raised this error while it was imported.
    """
    try:
        found = load_object(target, example="lanebus.projections:USAGE")
    except TargetNotFound as error:
        raise ProjectionNotFound(target, error.reason) from None
    if not isinstance(found, Projection):
        name = target.rpartition(":")[2]
        raise ProjectionNotFound(target, f"{name!r} is no projection: decorate its function with @projection(name, …)")
    return cast("Projection[object]", found)
