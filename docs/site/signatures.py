"""Read signatures and fields from the source: snake_case names, plain types and plain defaults.

At run time a pydantic model shows its JSON names, and the repr of a default may be useless to a reader.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cached_property
from typing import cast

from pydantic import BaseModel

__all__ = ("body_of", "properties_of", "signature_of")

_PLAIN = (int, float, str, bool, type(None))
_SHOWN = frozenset({"asynccontextmanager", "contextmanager", "classmethod", "staticmethod"})
"""the decorators that change how a function is called"""


def signature_of(name: str, function: Callable[..., object]) -> str | None:
    """Return the first line of a function, such as `async def Session.head() -> SessionHead`, after its decorators.

    A decorator is left out if it does not change how the function is called. Return None if the function has no source
    because it is not written in Python.
    """
    function = inspect.unwrap(function)
    node = _parsed(function)
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    names = cast("Mapping[str, object]", getattr(function, "__globals__", {}))
    arguments = node.args
    for own in (arguments.posonlyargs, arguments.args):
        if own and own[0].arg in {"self", "cls"}:
            del own[0]
    arguments.defaults = [_plain(default, names) for default in arguments.defaults]
    arguments.kw_defaults = [default and _plain(default, names) for default in arguments.kw_defaults]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    lines = [f"@{decorator}" for decorator in decorators if decorator in _SHOWN]
    return "\n".join([*lines, f"{kind} {name}({ast.unparse(arguments)}){returns}"])


def body_of(found: type) -> str | None:
    """Return a class with its public fields and their docstrings in the source. Fields of base classes come first.

    Return None if neither the class nor a base has fields.
    """
    fields = dict[str, tuple[str, str]]()
    for base in reversed(found.__mro__):
        if base.__module__.partition(".")[0] not in {"builtins", "typing", "pydantic", "enum"}:
            fields |= {name: (line, told) for name, line, told in _fields(base)}
    if not fields or not _is_record(found):
        return None
    lines = [f"class {found.__name__}:"]
    for line, told in fields.values():
        lines.append(f"    {line}")
        if told:
            lines.append(textwrap.indent(f'"""{told}"""', "    "))
    return "\n".join(lines)


def properties_of(found: type) -> Iterator[tuple[str, str]]:
    """Yield the public properties of a class: a line with the type, and the docstring."""
    for name, member in vars(found).items():
        function = member.fget if isinstance(member, property) else getattr(member, "func", None)
        if name.startswith("_") or not isinstance(member, property | cached_property) or not callable(function):
            continue
        node = _parsed(function)
        kind = f": {ast.unparse(node.returns)}" if isinstance(node, ast.FunctionDef) and node.returns else ""
        yield f"{found.__name__}.{name}{kind}", inspect.getdoc(cast("object", member)) or ""


def _is_record(found: type) -> bool:
    """Whether the fields of a class are its public data, and not only declarations of types."""
    kinds: tuple[type, ...] = (BaseModel, Enum, tuple, BaseException)
    return any(kind in found.__mro__ for kind in kinds) or _is_protocol(found) or is_dataclass(found)


def _is_protocol(found: type) -> bool:
    return bool(getattr(found, "_is_protocol", False))


def _fields(found: type) -> Iterator[tuple[str, str, str]]:
    node = _parsed(found)
    if not isinstance(node, ast.ClassDef):
        return
    names = cast("Mapping[str, object]", vars(inspect.getmodule(found)))
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        told = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            told = inspect.cleandoc(after.value.value)
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name, kind = statement.target.id, ast.unparse(statement.annotation)
            if name.startswith("_") or name == "model_config":
                continue
            value = _default(statement.value, names) if statement.value is not None else None
            yield name, f"{name}: {kind}" + (f" = {value}" if value is not None else ""), told
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if not name.startswith("_") and (name == "KIND" or issubclass(found, Enum)):
                yield name, f"{name} = {ast.unparse(statement.value)}", told


def _default(value: ast.expr, names: Mapping[str, object]) -> str | None:
    """Return the default of a field, taken out of a call of `field` or `Field`; None if the field has no default."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in {"field", "Field"}:
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        if (factory := given.get("default_factory")) is not None:
            return ast.unparse(factory.body) if isinstance(factory, ast.Lambda) else f"{ast.unparse(factory)}()"
        default = given.get("default", value.args[0] if value.args else None)
        return None if default is None else _default(default, names)
    return ast.unparse(_plain(value, names))


def _plain(default: ast.expr, names: Mapping[str, object]) -> ast.expr:
    """Return a default, with a constant's name replaced by its value, and a private "not given" mark replaced by
    `...`."""
    if not isinstance(default, ast.Name):
        return default
    value = names.get(default.id)
    if default.id in names and isinstance(value, _PLAIN) and not isinstance(value, Enum):
        return ast.Constant(value)
    return ast.Constant(...) if default.id.startswith("_") else default


def _parsed(found: object) -> ast.stmt | None:
    try:
        source = inspect.getsource(cast("type", found))
    except (OSError, TypeError):
        return None
    module = ast.parse(textwrap.dedent(source))
    _Bare().visit(module)
    return module.body[0]


class _Bare(ast.NodeTransformer):
    """Reduces each `Annotated[…]` to its type: the constraints do not help a reader."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:  # the name is that of `ast.NodeVisitor`
        self.generic_visit(node)
        is_annotated = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
        return node.slice.elts[0] if is_annotated and isinstance(node.slice, ast.Tuple) else node
