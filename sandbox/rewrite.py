"""From an author's JavaScript to one the interpreter can run: top-level `await`, a completion value, no imports.

QuickJS offers top-level `await` only in modules, and modules have no completion value. So a source becomes the body
of one async function, on the same lines, after a few edits found with tree-sitter:

- the last expression statement is returned;
- in a script (not in a module with a default export) top-level declarations become assignments to globals declared
  beforehand, so that a later evaluation of the same REPL sees them and may declare them again;
- `@archmax-ai/harness/*` imports vanish (03 §19.4), `export` keywords too, and a default export is handed over;
- every other import is reported, and the source is then not run at all.

tree-sitter never decides what is valid: where it finds an error the source goes to the interpreter as it is, whose
complaint the author reads. Runs inside the sandbox process for scripts (the parser sees hostile text), and in the
host for validation. Every pass is linear in the source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query

HARNESS_PREFIX: Final = "@archmax-ai/harness/"
#: name of the one parameter of the function a source becomes
HANDLE: Final = "$archmax"

_IGNORED = frozenset({"comment", "hash_bang_line", "empty_statement", "html_comment"})
_FUNCTIONS = frozenset({"function_declaration", "generator_function_declaration"})
#: statements through which a `var` is hoisted to the top level
_BLOCKS = frozenset({
    "statement_block", "if_statement", "else_clause", "for_statement", "for_in_statement", "while_statement",
    "do_statement", "try_statement", "catch_clause", "finally_clause", "switch_statement", "switch_body",
    "switch_case", "switch_default", "labeled_statement", "with_statement",
})  # fmt: skip


@dataclass(frozen=True)
class Program:
    """What the interpreter runs. `code` is an expression whose value is an async function taking the handle."""

    code: str
    #: globals to declare before the run
    names: tuple[str, ...]
    #: specifiers that may not be imported, each once, in source order
    forbidden: tuple[str, ...]
    #: characters in front of the first line of a source otherwise unchanged; `None`: columns have moved
    prefix: int | None


@dataclass
class _Edits:
    """Replacements of byte ranges, applied in one pass. None overlaps another."""

    source: bytes
    items: list[tuple[int, int, bytes]] = field(default_factory=list)

    def replace(self, start: int, end: int, text: str) -> None:
        """Put `text` in place of a range, keeping the range's line breaks so that later lines stay where they are."""
        self.items.append((start, end, text.encode() + b"\n" * self.source.count(b"\n", start, end)))

    def apply(self) -> str:
        parts: list[bytes] = []
        at = 0
        for start, end, text in sorted(self.items, key=lambda item: (item[0], item[1])):
            parts += (self.source[at:start], text)
            at = end
        parts.append(self.source[at:])
        return b"".join(parts).decode()


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_javascript

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_javascript.language()))


@cache
def _imports_query() -> Query:
    import tree_sitter

    language = _parser().language
    assert language is not None
    return tree_sitter.Query(
        language,
        "(import_statement source: (string) @static) (export_statement source: (string) @static)"
        " (call_expression function: (import) arguments: (_) @dynamic)",
    )


def warm_up() -> None:
    """Load the grammar now, so that forked processes share it."""
    _imports_query()


def forbidden_imports(source: str) -> list[str]:
    """The specifiers `source` imports, statically or dynamically, that a script may not; each once, in order.

    A dynamic import is never allowed; one whose specifier is computed is reported as it is written.
    """
    if "import" not in source and "export" not in source:
        return []
    return _forbidden(_parser().parse(source.encode("utf-8", "replace")).root_node)


def rewrite(source: str, *, module: bool) -> Program:
    """Prepare `source` (well-formed text without NUL) for one evaluation; `module` admits `export`."""
    data = source.encode()
    root = _parser().parse(data).root_node
    forbidden = tuple(_forbidden(root)) if b"import" in data or b"export" in data else ()
    if root.has_error or forbidden:
        head = f"(async({HANDLE})=>{{"
        return Program(f"{head}{source}\n}})", (), forbidden, len(head))
    edits = _Edits(data)
    tail = _strip_modules(root, edits, module=module)
    if tail is not None:
        head = f'(async function({HANDLE}){{"use strict";'
        return Program(f"{head}{edits.apply()}\n{tail};return await {HANDLE}.finish();}})", (), (), None)
    names: dict[str, None] = {}
    functions = _globalise(root, edits, names)
    _return_last(root, edits)
    head = f"(async({HANDLE})=>{{" + "".join(f"{HANDLE}.globals.{name}={name};" for name in functions)
    return Program(f"{head}{edits.apply()}\n}})", tuple(names), (), None)


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def _specifier(node: Node) -> str:
    """The value of a string literal without escapes, or the source text of anything else."""
    inner = node.named_children
    if node.type in ("string", "template_string") and all(child.type == "string_fragment" for child in inner):
        return "".join(_text(child) for child in inner)
    return _text(node)[:200]


def _forbidden(root: Node) -> list[str]:
    import tree_sitter

    captures = tree_sitter.QueryCursor(_imports_query()).captures(root)
    found: list[tuple[int, str]] = []
    for node in captures.get("static", []):
        specifier = _specifier(node)
        if not specifier.startswith(HARNESS_PREFIX):
            found.append((node.start_byte, specifier))
    for node in captures.get("dynamic", []):
        arguments = [child for child in node.named_children if child.type not in _IGNORED]
        found.append((node.start_byte, _specifier(arguments[0]) if arguments else ""))
    return list(dict.fromkeys(specifier for _, specifier in sorted(found)))


def _strip_modules(root: Node, edits: _Edits, *, module: bool) -> str | None:
    """Take imports and exports out. Returns the statement that hands over a default export, `None` without one."""
    tail: str | None = None
    for node in root.named_children:
        if node.type == "hash_bang_line":
            edits.replace(node.start_byte, node.end_byte, "")
        elif node.type == "import_statement":
            edits.replace(node.start_byte, node.end_byte, _import_bindings(node))
        elif node.type == "export_statement" and module:
            tail = _strip_export(node, edits) or tail
    return tail


def _import_bindings(node: Node) -> str:
    """`defineCodeState` under another name is the only thing a type carrier can give a script."""
    bound: list[str] = []
    for clause in (child for child in node.named_children if child.type == "import_clause"):
        for part in clause.named_children:
            if part.type == "namespace_import":
                bound.append(f"{_text(part.named_children[0])}={{defineCodeState}}")
            for item in part.named_children if part.type == "named_imports" else ():
                name, alias = item.child_by_field_name("name"), item.child_by_field_name("alias")
                if name is not None and alias is not None and _text(name) == "defineCodeState":
                    bound.append(f"{_text(alias)}=defineCodeState")
    return f"var {','.join(bound)};" if bound else ";"


def _strip_export(node: Node, edits: _Edits) -> str | None:
    declaration, value = node.child_by_field_name("declaration"), node.child_by_field_name("value")
    is_default = any(child.type == "default" for child in node.children)
    if declaration is not None:
        edits.replace(node.start_byte, declaration.start_byte, "")
        name = declaration.child_by_field_name("name")
        return f"{HANDLE}.exported={_text(name)}" if is_default and name is not None else None
    if value is not None:
        edits.replace(node.start_byte, value.start_byte, f";{HANDLE}.exported=")
        edits.items.append((value.end_byte, value.end_byte, b";"))
        return "0"
    edits.replace(node.start_byte, node.end_byte, ";")
    if node.child_by_field_name("source") is not None:
        return None
    for clause in (child for child in node.named_children if child.type == "export_clause"):
        for item in clause.named_children:
            name, alias = item.child_by_field_name("name"), item.child_by_field_name("alias")
            if name is not None and alias is not None and _text(alias).strip("'\"") == "default":
                return f"{HANDLE}.exported={_text(name)}"
    return None


def _globalise(root: Node, edits: _Edits, names: dict[str, None]) -> list[str]:
    """Turn top-level declarations and hoisted `var`s into assignments; collects `names`, returns the functions."""
    functions: list[str] = []
    stack = [(node, True) for node in reversed(root.named_children)]
    while stack:
        node, top = stack.pop()
        if node.type == "export_statement":
            declaration = node.child_by_field_name("declaration")
            stack += [(declaration, top)] if declaration is not None else []
        elif node.type == "variable_declaration" or (top and node.type == "lexical_declaration"):
            _assign(node, edits, names, in_for=False)
        elif top and node.type in _FUNCTIONS | {"class_declaration"}:
            name = node.child_by_field_name("name")
            if name is None:
                continue
            names[_text(name)] = None
            if node.type in _FUNCTIONS:
                functions.append(_text(name))
            else:  # `;` at the end: a class declaration needs none, an assignment does
                edits.items.append((node.start_byte, node.start_byte, f"void({_text(name)}=".encode()))
                edits.items.append((node.end_byte, node.end_byte, b");"))
        elif node.type in _BLOCKS:
            _hoist_from_for(node, edits, names)
            stack += [
                (child, False)
                for child in reversed(node.named_children)
                if child.type in _BLOCKS or child.type == "variable_declaration"
                if not (node.type == "for_statement" and child.type == "variable_declaration")
            ]
    return functions


def _hoist_from_for(node: Node, edits: _Edits, names: dict[str, None]) -> None:
    if node.type == "for_statement":
        first = node.child_by_field_name("initializer")
        if first is not None and first.type == "variable_declaration":
            _assign(first, edits, names, in_for=True)
    elif node.type == "for_in_statement":
        kind, left = node.child_by_field_name("kind"), node.child_by_field_name("left")
        if kind is not None and left is not None and kind.type == "var":
            edits.replace(kind.start_byte, kind.end_byte, "")
            _collect(left, names)


def _assign(node: Node, edits: _Edits, names: dict[str, None], *, in_for: bool) -> None:
    """`const {a} = f(), b;` becomes `void({a} = f(), b=void 0);`, which no line before it can swallow."""
    keyword = node.children[0]
    edits.items.append((keyword.start_byte, keyword.end_byte, b"void(" if not in_for else b"("))
    end = keyword.end_byte
    for declarator in node.named_children:
        if declarator.type != "variable_declarator":
            continue
        target, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
        end = declarator.end_byte
        if target is None:
            continue
        _collect(target, names)
        if value is None and keyword.type == "let":
            edits.items.append((end, end, b"=void 0"))
    closed = (
        in_for
        or node.children[-1].type == ";"
        or (node.parent is not None and node.parent.type == "if_statement")
    )
    edits.items.append((end, end, b")" if closed else b");"))


def _collect(pattern: Node, names: dict[str, None]) -> None:
    """The identifiers a binding pattern binds."""
    stack = [pattern]
    while stack:
        node = stack.pop()
        match node.type:
            case "identifier" | "shorthand_property_identifier_pattern":
                names[_text(node)] = None
            case "pair_pattern":
                value = node.child_by_field_name("value")
                stack += [value] if value is not None else []
            case "assignment_pattern" | "object_assignment_pattern":
                left = node.child_by_field_name("left")
                stack += [left] if left is not None else []
            case _:
                stack += reversed(node.named_children)


def _return_last(root: Node, edits: _Edits) -> None:
    """Return the value of the last statement, where that is an expression, also inside `if`, `try` and blocks."""
    stack = [_last(root)]
    while stack:
        node = stack.pop()
        if node is None:
            continue
        match node.type:
            case "expression_statement":
                value = next((child for child in node.named_children if child.type not in _IGNORED), None)
                if value is not None:
                    edits.items.append((value.start_byte, value.start_byte, b"return ("))
                    edits.items.append((value.end_byte, value.end_byte, b")"))
            case "statement_block":
                stack.append(_last(node))
            case "if_statement":
                stack += [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
            case "try_statement":
                stack += [node.child_by_field_name("body"), node.child_by_field_name("handler")]
            case "catch_clause":
                stack.append(node.child_by_field_name("body"))
            case "else_clause" | "labeled_statement":
                stack.append(_last(node))
            case _:
                pass


def _last(node: Node) -> Node | None:
    return next((child for child in reversed(node.named_children) if child.type not in _IGNORED), None)
