"""Finding skill bundles: which capabilities a workspace provides (01 §17).

A bundle is a folder with a `SKILL.md`; the folder's name is the slug governance uses, whatever the file says. A folder
whose `SKILL.md` cannot be used is remembered too, so that nothing in it is reachable (02 OP-13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from core.paths import canonical
from engine.spec.diagnostics import Diagnostic, Severity, message_at, shown
from engine.spec.frontmatter import split_frontmatter
from engine.spec.paths import is_blank, slug_ok
from engine.spec.report import kind_phrase
from engine.spec.tree import AuthoringTree
from engine.spec.yaml12 import YamlProblem, load_yaml

DEFAULT_SOURCES: Final = ("skills/",)
MANIFEST: Final = "SKILL.md"
MAX_DESCRIPTION_CHARS: Final = 1_024
MAX_NAME_CHARS: Final = 64


class Skill(NamedTuple):
    """A loaded bundle. `prefix` is its folder, `manifest` the path of its `SKILL.md`, both canonical."""

    slug: str
    prefix: str
    description: str
    manifest: str


class WithheldSkill(NamedTuple):
    """A folder with a `SKILL.md` that no list can enable: unloadable, or shadowed by a later source."""

    slug: str
    prefix: str


@dataclass(frozen=True, slots=True)
class SkillRegistry:
    """`skills` in order of discovery, slugs distinct. `problems` carry `validate`'s severities; at run time all warn."""

    skills: tuple[Skill, ...] = ()
    withheld: tuple[WithheldSkill, ...] = ()
    problems: tuple[Diagnostic, ...] = ()

    @property
    def slugs(self) -> tuple[str, ...]:
        return tuple(skill.slug for skill in self.skills)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(problem.message for problem in self.problems)

    def get(self, slug: str) -> Skill | None:
        return next((skill for skill in self.skills if skill.slug == slug), None)


def discover_skills(tree: AuthoringTree, sources: Sequence[str] = DEFAULT_SOURCES) -> SkillRegistry:
    """All bundles of the given sources, each a folder of bundles or one bundle itself.

    Raises: `OSError` when a source cannot be listed.
    """
    found: dict[str, Skill] = {}
    withheld: list[WithheldSkill] = []
    problems: list[Diagnostic] = []
    for prefix in _bundles(tree, sources):
        slug = prefix.rpartition("/")[2]
        loaded = _load(tree, slug, prefix, problems)
        if loaded is None:
            withheld.append(WithheldSkill(slug, prefix))
            continue
        earlier = found.pop(slug, None)
        if earlier is not None and earlier.prefix != prefix:
            withheld.append(WithheldSkill(slug, earlier.prefix))
            problems.append(
                _problem(
                    "warning",
                    "skills.shadowed",
                    loaded,
                    f"skill '{slug}' replaces the one in {earlier.prefix}/",
                )
            )
        found[slug] = loaded
    return SkillRegistry(tuple(found.values()), tuple(withheld), tuple(problems))


def _bundles(tree: AuthoringTree, sources: Sequence[str]) -> list[str]:
    """The folders that hold a `SKILL.md`, in order of source and name."""
    found: dict[str, None] = {}
    for source in sources:
        folder = canonical(source)
        if folder.escaping:
            continue
        files = tree.files(folder.text)
        own = f"{folder.text}/{MANIFEST}" if folder.text else MANIFEST
        if own in files and folder.text:
            found[folder.text] = None
            continue
        depth = len(folder.segments)
        for path in files:
            segments = path.split("/")
            if len(segments) == depth + 2 and segments[-1] == MANIFEST:
                found["/".join(segments[:-1])] = None
    return list(found)


def _load(tree: AuthoringTree, slug: str, prefix: str, problems: list[Diagnostic]) -> Skill | None:
    manifest = f"{prefix}/{MANIFEST}"
    skill = Skill(slug, prefix, "", manifest)
    try:
        data = tree.read(manifest)
        front = _front(data)
    except (OSError, YamlProblem, _Unloadable) as error:
        problems.append(_problem("warning", "skills.unloadable", skill, f"the skill is not loaded: {error}"))
        return None
    if not slug_ok(slug):
        problems.append(
            _problem("error", "skills.non-slug-dir", skill, f"the folder's name '{shown(slug)}' is no slug")
        )
    if front.name is not None and front.name != slug:
        problems.append(
            _problem(
                "error",
                "skills.name-mismatch",
                skill,
                f"name is '{shown(front.name)}' but the folder is '{shown(slug)}': the folder's name governs",
            )
        )
    return skill._replace(description=front.description)


class _Unloadable(Exception):
    """Why a `SKILL.md` cannot be used."""


class _Front(NamedTuple):
    description: str
    name: str | None


def _front(data: bytes | None) -> _Front:
    text = (data or b"").decode("utf-8", "replace")
    if not text.strip():
        raise _Unloadable("the file is empty")
    parts = split_frontmatter(text)
    if parts is None:
        raise _Unloadable("it has no frontmatter (a block between two lines ---)")
    front = load_yaml(parts.yaml).value
    if not isinstance(front, dict):
        raise _Unloadable(f"its frontmatter is {kind_phrase(front)}, not a mapping")
    description, name = front.get("description"), front.get("name")
    if is_blank(description):
        raise _Unloadable("its frontmatter has no description")
    description = str(description).strip()
    if len(description) > MAX_DESCRIPTION_CHARS:
        raise _Unloadable(f"its description is longer than {MAX_DESCRIPTION_CHARS} characters")
    if name is not None and not isinstance(name, str):
        raise _Unloadable(f"its name is {kind_phrase(name)}, not a string")
    if name is not None and len(name) > MAX_NAME_CHARS:
        raise _Unloadable(f"its name is longer than {MAX_NAME_CHARS} characters")
    return _Front(description, name)


def _problem(severity: Severity, id_: str, skill: Skill, text: str) -> Diagnostic:
    file = skill.manifest
    return Diagnostic(severity, id_, message_at(file, "skills", text, None, None), file, "skills")
