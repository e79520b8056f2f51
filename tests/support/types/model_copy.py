"""A mypy plugin: the fields that `model_copy(update={…})` changes are checked like arguments of the constructor.

Pydantic types `update` as a mapping of anything, and does not validate it. With this plugin a misspelt field or a value
of another type fails type checking. Keys that are not written out at the call are not checked.
"""

from collections.abc import Callable

from mypy.nodes import DictExpr, Expression, StrExpr, Var
from mypy.plugin import MethodContext, Plugin
from mypy.subtypes import is_subtype
from mypy.typeops import map_type_from_supertype
from mypy.types import AnyType, Instance, Type, get_proper_type

__all__ = ("plugin",)


class ModelCopyPlugin(Plugin):
    """Check each call of `BaseModel.model_copy`."""

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        return _check_call if "model_copy" in fullname else None


def _check_call(ctx: MethodContext) -> Type:
    for formal, actuals in zip(ctx.callee_arg_names, ctx.args, strict=True):
        for actual in actuals:
            if formal == "update":
                _check_update(ctx, actual)
    return ctx.default_return_type


def _check_update(ctx: MethodContext, update: Expression) -> None:
    model = get_proper_type(ctx.default_return_type)
    if not isinstance(update, DictExpr) or not isinstance(model, Instance):
        return
    for key, value in update.items:
        if not isinstance(key, StrExpr):
            continue
        symbol = model.type.get(key.value)
        if symbol is None or not isinstance(symbol.node, Var) or symbol.node.type is None:
            ctx.api.fail(f'"{model.type.name}" has no field "{key.value}"', key)
            continue
        owner = model.type.get_containing_type_info(key.value) or model.type
        wanted = get_proper_type(map_type_from_supertype(symbol.node.type, model.type, owner))
        given = ctx.api.get_expression_type(value, wanted)
        if not isinstance(wanted, AnyType) and not is_subtype(given, wanted):
            ctx.api.fail(f'"{key.value}" of "{model.type.name}" is {wanted}, and not {given}', value)


def plugin(version: str) -> type[Plugin]:
    """Return the plugin; mypy asks for it by this name."""
    del version
    return ModelCopyPlugin
