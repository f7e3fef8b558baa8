"""Finds code of the controller that reaches a part through another part, by reading the source.

A part is a class of `criproxy.node` that does something: it has a public method. Values (settings, counters, what a
call remembers) are no parts, and neither is what only connects parts: `Context` and `Controller`.
"""

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

WIRING = frozenset({"Context", "Controller"})
_NO_PARTS = frozenset({"Exception", "Enum", "Protocol", "CriproxyError", "Fault", "Refused", "StoreError"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Class:
    """A class, and of which classes its attributes are."""

    is_part: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


def chains(folder: Path, *others: Path) -> list[str]:
    """Each place (``FILE:LINE: CODE``) in *folder* or a file of *others* that reads a part from another part."""
    trees = {path: ast.parse(path.read_text()) for path in (*sorted(folder.rglob("*.py")), *others)}
    known = {
        node.name: node
        for path, tree in trees.items()
        if path not in others
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    classes = {name: _class(node, known) for name, node in known.items()}
    return [f"{path.name}:{line}: {code}" for path, tree in trees.items() for line, code in _found(tree, classes)]


def _class(node: ast.ClassDef, known: Collection[str]) -> Class:
    bases = {ast.unparse(base) for base in node.bases}
    methods = [each for each in node.body if isinstance(each, Function)]
    found = Class(
        is_part=node.name not in WIRING
        and not bases & _NO_PARTS
        and any(not each.name.startswith("_") and not each.decorator_list for each in methods)
    )
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            _note(found, each.target.id, _named(each.annotation, known))
    for method in methods:
        if any(ast.unparse(each) == "property" for each in method.decorator_list):
            _note(found, method.name, _named(method.returns, known))
        types = _parameters(method, known)
        for assigned in (each for each in ast.walk(method) if isinstance(each, ast.Assign)):
            for target in assigned.targets:
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                    _note(found, target.attr, _made(assigned.value, types, known))
    return found


def _note(found: Class, attribute: str, kind: str) -> None:
    if kind:
        found.attributes.setdefault(attribute, kind)


def _named(annotation: ast.expr | None, known: Collection[str]) -> str:
    """The class of the controller that an annotation names, if it is one or ``None``."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    words = set(ast.unparse(annotation).split(" | ")) - {"None"} if annotation else set[str]()
    return words.pop() if len(words) == 1 and words <= set(known) else ""


def _made(value: ast.expr, types: Mapping[str, str], known: Collection[str]) -> str:
    """The class of what is assigned: a parameter, or what is made on the spot."""
    if isinstance(value, ast.BoolOp):  # what is given, or else a new one
        return _made(value.values[-1], types, known)
    if isinstance(value, ast.Name):
        return types.get(value.id, "")
    return _named(value.func, known) if isinstance(value, ast.Call) else ""


def _parameters(function: Function, known: Collection[str]) -> dict[str, str]:
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return {each.arg: kind for each in arguments if (kind := _named(each.annotation, known))}


def _found(tree: ast.Module, classes: Mapping[str, Class]) -> Iterator[tuple[int, str]]:
    owners = {id(each): node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in node.body}
    for function in ast.walk(tree):
        if isinstance(function, Function) and (id(function) in owners or not function.name.startswith("__")):
            yield from _Reader(classes, owners.get(id(function), "")).read(function)


@dataclass(slots=True)
class _Reader:
    """Reads one function, statement by statement, so that names of its own are known."""

    classes: Mapping[str, Class]
    owner: str
    """The class that it is a method of; empty: none."""
    names: dict[str, str] = field(default_factory=dict)

    def read(self, function: Function) -> Iterator[tuple[int, str]]:
        """The line and the code of each chain in *function*."""
        self.names = _parameters(function, self.classes)
        for node in ast.walk(function):
            for target, value in _assigned(node):
                if kind := self.kind(value):
                    self.names[target] = kind
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute | ast.Call) and self.is_chain(node):
                yield node.lineno, ast.unparse(node)

    def is_chain(self, node: ast.expr) -> bool:
        """Whether it is a part, and an attribute of another part than the function's own."""
        source = _attribute_of(node)
        if source is None or ast.unparse(source[0]) == "self":
            return False
        before = self.classes.get(self.kind(source[0]))
        after = self.classes.get(self.kind(node))
        return before is not None and before.is_part and after is not None and after.is_part

    def kind(self, node: ast.expr) -> str:
        """The class of an expression, as far as the source tells; empty where it does not."""
        if isinstance(node, ast.Name):
            return self.owner if node.id == "self" else self.names.get(node.id, "")
        if (source := _attribute_of(node)) is None:
            return ""
        owner = self.classes.get(self.kind(source[0]))
        return owner.attributes.get(source[1], "") if owner else ""


def _attribute_of(node: ast.expr) -> tuple[ast.expr, str] | None:
    """What ``X.name`` or ``getattr(X, "name")`` reads, and the name."""
    if isinstance(node, ast.Attribute):
        return node.value, node.attr
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and isinstance(node.args[1], ast.Constant):
        return node.args[0], str(node.args[1].value)
    return None


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names that get a value here: ``a = X``, ``a, b = X, Y``, ``a := X``."""
    if isinstance(node, ast.NamedExpr) and isinstance(node.target, ast.Name):
        yield node.target.id, node.value
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target.id, node.value
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for each, value in zip(target.elts, node.value.elts, strict=False):
                if isinstance(each, ast.Name):
                    yield each.id, value
