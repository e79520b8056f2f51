"""An extension of griffe: a method that a class takes over from a module is shown with its own docstring.

`Session` is written as a table, `publish = publishing.publish`, which griffe reads as an attribute without one.
"""

import copy

import griffe

__all__ = ("TakenOver",)


class TakenOver(griffe.Extension):
    """Puts the function in the place of the attribute that names it."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: object) -> None:
        """Change the classes of a package once all of it is read."""
        del kwargs
        self._visit(pkg, loader, set())

    def _visit(self, found: griffe.Module, loader: griffe.GriffeLoader, seen: set[str]) -> None:
        for member in [*found.members.values()]:
            if isinstance(member, griffe.Class):
                _take_over(member, loader)
            elif isinstance(member, griffe.Module) and member.path not in seen:
                seen.add(member.path)
                self._visit(member, loader, seen)


def _take_over(found: griffe.Class, loader: griffe.GriffeLoader) -> None:
    for name, member in [*found.members.items()]:
        if not isinstance(member, griffe.Attribute) or not isinstance(member.value, griffe.ExprAttribute):
            continue
        # By the imports of the module: in the class, `checkpoints` is the method and no module.
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
