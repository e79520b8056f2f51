"""An extension of griffe that documents a method which a class takes over from a module.

`Session` assigns such methods, as in `publish = publishing.publish`. Griffe reads this as an attribute without a
docstring.

What a docstring calls internal is left out.
"""

import copy

import griffe

__all__ = ("TakenOver",)


class TakenOver(griffe.Extension):
    """Replaces an attribute whose value is a function of a module by that function."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: object) -> None:
        """Change the classes of a package once the whole package is read."""
        del kwargs
        self._visit(pkg, loader, set())

    def _visit(self, found: griffe.Module, loader: griffe.GriffeLoader, seen: set[str]) -> None:
        for member in [*found.members.values()]:
            if isinstance(member, griffe.Class):
                _take_over(member, loader)
                _leave_out_internal(member)
            elif isinstance(member, griffe.Module) and member.path not in seen:
                seen.add(member.path)
                self._visit(member, loader, seen)


def _leave_out_internal(found: griffe.Class) -> None:
    for name, member in [*found.members.items()]:
        if member.docstring is not None and member.docstring.value.startswith("internal: "):
            found.del_member(name)


def _take_over(found: griffe.Class, loader: griffe.GriffeLoader) -> None:
    for name, member in [*found.members.items()]:
        if not isinstance(member, griffe.Attribute) or not isinstance(member.value, griffe.ExprAttribute):
            continue
        # Look the module up in the imports: in the class, `checkpoints` is the method and not the module.
        head, _, rest = str(member.value).partition(".")
        try:
            function = loader.modules_collection[f"{found.module.imports[head]}.{rest}"]
        except KeyError:
            continue
        if isinstance(function, griffe.Function):
            method = copy.copy(function)
            first, *others = method.parameters
            method.parameters = griffe.Parameters(griffe.Parameter(first.name, kind=first.kind), *others)
            method.lineno, method.endlineno = member.lineno, member.endlineno
            method.name = name
            found.set_member(name, method)
