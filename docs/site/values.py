"""Read the definition of a value, such as a type alias, and the docstring below it from the source."""

import ast
import inspect
from importlib import import_module
from itertools import pairwise
from typing import NamedTuple

__all__ = ("Definition", "definition_of")

_LONGEST = 300
"""characters of a definition; longer ones are tables, whose docstring says more"""


class Definition(NamedTuple):
    """How a value is defined."""

    code: str
    """the assignment; "" if it is long"""
    told: str
    """the docstring; "" if there is none"""


def definition_of(module: str, name: str) -> Definition | None:
    """Return the definition of a name of a module, also if the module imports the name; None if none is found."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    for node, following in pairwise([*tree.body, ast.Pass()]):
        if _assigns(node, name):
            code = ast.unparse(node)
            return Definition(code if len(code) <= _LONGEST else "", _docstring(following))
    for found in ast.walk(tree):  # also in the block `if TYPE_CHECKING` of a module that imports lazily
        if isinstance(found, ast.ImportFrom) and found.module is not None:
            for alias in found.names:
                if (alias.asname or alias.name) == name:
                    return definition_of(found.module, alias.name)
    return None


def _assigns(node: ast.stmt, name: str) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found)):
            return found == name
        case _:
            return False


def _docstring(node: ast.stmt) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
        case _:
            return ""
