"""A mypy plugin: the fields that `model_copy(update={…})` changes are checked like arguments of the constructor.

Pydantic types `update` as a mapping of anything, and does not validate it. With this plugin a misspelt field or a value
of another type fails type checking. Fields are written out at the call or are those of a `TypedDict`. Product code may
give nothing else; tests may compute fields, which are then not checked.
"""

from collections.abc import Callable

from mypy.nodes import Context, DictExpr, Expression, StrExpr, Var
from mypy.plugin import MethodContext, Plugin
from mypy.subtypes import is_subtype
from mypy.typeops import map_type_from_supertype
from mypy.types import AnyType, Instance, Type, TypedDictType, get_proper_type

__all__ = ("plugin",)


class ModelCopyPlugin(Plugin):
    """Check each call of `BaseModel.model_copy`."""

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        return _check_call if "model_copy" in fullname else None


def _check_call(ctx: MethodContext) -> Type:
    model = get_proper_type(ctx.default_return_type)
    for formal, actuals in zip(ctx.callee_arg_names, ctx.args, strict=True):
        for actual in actuals:
            if formal == "update" and isinstance(model, Instance):
                _check_update(ctx, model, actual)
    return ctx.default_return_type


def _check_update(ctx: MethodContext, model: Instance, update: Expression) -> None:
    if not isinstance(update, DictExpr):
        _check_computed(ctx, model, update)
        return
    for key, value in update.items:
        if isinstance(key, StrExpr):
            _check_field(ctx, model, key.value, value, key)
        else:
            _check_computed(ctx, model, value)


def _check_computed(ctx: MethodContext, model: Instance, update: Expression) -> None:
    given = get_proper_type(ctx.api.get_expression_type(update))
    if isinstance(given, TypedDictType):
        for key, value in given.items.items():
            _check_field(ctx, model, key, value, update)
    elif not ctx.api.path.startswith("tests"):
        ctx.api.fail(f'write out the fields of "{model.type.name}", or make them a TypedDict', update)


def _check_field(ctx: MethodContext, model: Instance, field: str, value: Expression | Type, place: Context) -> None:
    symbol = model.type.get(field)
    if symbol is None or not isinstance(symbol.node, Var) or symbol.node.type is None:
        ctx.api.fail(f'"{model.type.name}" has no field "{field}"', place)
        return
    owner = model.type.get_containing_type_info(field) or model.type
    wanted = get_proper_type(map_type_from_supertype(symbol.node.type, model.type, owner))
    given = ctx.api.get_expression_type(value, wanted) if isinstance(value, Expression) else value
    if not isinstance(wanted, AnyType) and not is_subtype(given, wanted):
        ctx.api.fail(f'"{field}" of "{model.type.name}" is {wanted}, and not {given}', place)


def plugin(version: str) -> type[Plugin]:
    """Return the plugin; mypy asks for it by this name."""
    del version
    return ModelCopyPlugin
