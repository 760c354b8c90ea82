"""Which model serves a role, and building it (03 §18, 01 §15, 05 §15).

Precedence for the agent: an explicit instance, then the state's id, then the workflow's, then what the host's factory
or the environment says. Everything comes in as values: no environment is read here.

An id `scripted:<path>` is the scripted model. With a base URL that OpenAI-compatible endpoint serves every other id;
without one LangChain's `init_chat_model` does, and the id is `provider:model`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from langchain_core.language_models import BaseChatModel
from pydantic import SecretStr

from engine.errors import ModelConfigurationError
from engine.models.errors import ModelScriptError
from engine.models.failures import redact
from engine.models.scope import Role
from engine.models.script import ModelScript
from engine.models.scripted import ScriptedChatModel
from engine.spec.model import Judge, Spec

SCRIPTED_PREFIX: Final = "scripted:"
MAX_SCRIPT_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What the edge read from its environment. Temperature and the like are None when unset."""

    model: str | None = None
    base_url: str | None = None
    api_key: SecretStr | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    streaming: bool = True
    prompt_cache: bool | None = None
    prompt_cache_ttl: Literal["5m", "1h"] | None = None

    def for_judge(self, judge: Judge | None) -> ModelSettings:
        """`tests.judge` laid over the environment's configuration (06 §10)."""
        if judge is None:
            return self
        return replace(
            self,
            model=judge.model or self.model,
            temperature=self.temperature if judge.temperature is None else judge.temperature,
            max_tokens=self.max_tokens if judge.max_tokens is None else judge.max_tokens,
        )


#: a host's own factory: role, a callable that gives the configuration when it is wanted, the id asked for
HostModelFactory: TypeAlias = Callable[[Role, Callable[[], ModelSettings], str | None], BaseChatModel]


def read_script(path: Path, *, shown: str) -> ModelScript:
    """Read a model script from disk. `shown` names it in messages. Raises: `ModelScriptError`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        raise ModelScriptError(shown, None, f"the model script cannot be read: {error.strerror}") from None
    return ModelScript.parse(shown, data)


class ModelFactory:
    """Chat models by role and id, one object for each distinct id.

    `script` beats everything (a case's own script, ruling 19). `root` is where relative script paths begin.
    """

    def __init__(
        self,
        settings: ModelSettings = ModelSettings(),
        *,
        instance: BaseChatModel | None = None,
        host: HostModelFactory | None = None,
        script: ModelScript | None = None,
        root: Path | None = None,
    ) -> None:
        self._settings = settings
        self._instance = instance
        self._host = host
        self._script = script
        self._root = root
        self._built: dict[tuple[str, str | None, ModelSettings | None], BaseChatModel] = {}
        self._scripts: dict[str, ModelScript] = {}

    @property
    def settings(self) -> ModelSettings:
        return self._settings

    @property
    def script(self) -> ModelScript | None:
        """The script every id is answered from, when one is configured. Raises: `ModelScriptError`."""
        if self._script is not None:
            return self._script
        if self._instance is None and self._host is None and _is_scripted(self._settings.model):
            return self._configured_script()
        return None

    def model(self, role: Role, requested: str | None = None, *, judge: Judge | None = None) -> BaseChatModel:
        """The model for a call. `requested` is the state's id, else the workflow's; None for the configured one.

        `judge` is `tests.judge`, for that role only.
        Raises: `ModelConfigurationError`, one line saying what to set.
        """
        if self._script is not None:
            return self._scripted(requested or (judge.model if judge else None), self._script)
        if self._instance is not None and (role == "agent" or (role == "grader" and self._host is None)):
            return self._instance
        settings = self._settings.for_judge(judge) if role == "judge" else self._settings
        if self._host is not None:
            return self._from_host(self._host, role, requested, settings)
        return self._configured(requested, settings)

    def check(self, spec: Spec | None = None) -> None:
        """Build what a workflow's agents and graders will ask for: a faulty setting is said before the first turn.

        Raises: `ModelConfigurationError`.
        """
        for role, requested in _requests(spec):
            self.model(role, requested)

    def _from_host(
        self, host: HostModelFactory, role: Role, requested: str | None, settings: ModelSettings
    ) -> BaseChatModel:
        key = (role, requested, settings if role == "judge" else None)
        if key not in self._built:
            built = host(role, lambda: _required(settings), requested)
            if not isinstance(built, BaseChatModel):
                raise ModelConfigurationError(
                    f"model_factory answered with {type(built).__name__} for role {role!r}, not with a chat model"
                )
            self._built[key] = built
        return self._built[key]

    def _configured(self, requested: str | None, settings: ModelSettings) -> BaseChatModel:
        if _is_scripted(self._settings.model):
            return self._scripted(requested, self._configured_script())
        if requested is not None and _is_scripted(requested):
            return self._scripted(requested, self._requested_script(requested))
        model_id = requested or settings.model
        if not model_id:
            raise ModelConfigurationError(
                "no model is configured: set ARCHMAX_MODEL, or pass a model or a model_factory"
            )
        key = ("", model_id, replace(settings, model=None))
        if key not in self._built:
            self._built[key] = _build(model_id, settings)
        return self._built[key]

    def _scripted(self, requested: str | None, script: ModelScript) -> BaseChatModel:
        model_id = (
            requested or (self._settings.model if _is_scripted(self._settings.model) else None) or "scripted"
        )
        key = (script.file, model_id, None)
        if key not in self._built:
            self._built[key] = ScriptedChatModel(script=script, model_id=model_id)
        return self._built[key]

    def _configured_script(self) -> ModelScript:
        path = (self._settings.model or "").removeprefix(SCRIPTED_PREFIX)
        if path not in self._scripts:
            if not path:
                raise ModelScriptError(
                    SCRIPTED_PREFIX, None, "names no file: write scripted:<path to a script>"
                )
            self._scripts[path] = read_script((self._root or Path()) / path, shown=path)
        return self._scripts[path]

    def _requested_script(self, requested: str) -> ModelScript:
        """A script a workflow document names: it must lie in the workspace, because documents are not trusted."""
        path = requested.removeprefix(SCRIPTED_PREFIX)
        if path not in self._scripts:
            if self._root is None:
                raise ModelScriptError(path, None, "there is no workspace root to find the model script in")
            root = self._root.resolve()
            file = (root / path).resolve()
            if not path or not file.is_relative_to(root):
                raise ModelScriptError(path, None, "a workflow's model script must lie in the workspace")
            self._scripts[path] = read_script(file, shown=path)
        return self._scripts[path]


def ignored_model_ids(spec: Spec, *, has_factory: bool) -> str | None:
    """The assembly warning when an explicit instance outranks declared ids; None when none is declared.

    With a factory beside the instance, graders keep theirs.
    """
    roles = ("agent", "human") if has_factory else ("agent", "human", "grader")
    states = {slug: state.model for slug, state in spec.states.items() if state.model and state.type in roles}
    named = [f"{model!r} (state {slug!r})" for slug, model in states.items()]
    if spec.settings.model and any(state.type in roles for state in spec.states.values()):
        named.insert(0, f"{spec.settings.model!r} (settings.model)")
    return f"the explicit model instance outranks the declared ids {', '.join(named)}" if named else None


def requested_id(spec: Spec, state: str) -> str | None:
    """The id a state's calls ask for: its own, else the workflow's (01 §15)."""
    found = spec.states.get(state)
    return (found.model if found else None) or spec.settings.model


def _requests(spec: Spec | None) -> Mapping[tuple[Role, str | None], None]:
    if spec is None:
        return {("agent", None): None}
    found: dict[tuple[Role, str | None], None] = {}
    for slug, state in spec.states.items():
        if state.type in ("agent", "human"):
            found["agent", requested_id(spec, slug)] = None
        elif state.type == "grader":
            found["grader", requested_id(spec, slug)] = None
    return found


def _is_scripted(model_id: str | None) -> bool:
    return model_id is not None and model_id.startswith(SCRIPTED_PREFIX)


def _required(settings: ModelSettings) -> ModelSettings:
    """The configuration a host's factory asked for; what it needs must be there."""
    missing = [
        name
        for name, value in (
            ("ARCHMAX_API_BASE_URL", settings.base_url),
            ("ARCHMAX_API_KEY", settings.api_key),
            ("ARCHMAX_MODEL", settings.model),
        )
        if not value
    ]
    if missing:
        raise ModelConfigurationError(f"the model's configuration is incomplete: set {', '.join(missing)}")
    return settings


def _build(model_id: str, settings: ModelSettings) -> BaseChatModel:
    if settings.base_url is not None:
        if settings.api_key is None or not settings.api_key.get_secret_value():
            raise ModelConfigurationError("the model's endpoint needs a key: set ARCHMAX_API_KEY")
        if not settings.base_url.startswith(("http://", "https://")):
            raise ModelConfigurationError(
                f"ARCHMAX_API_BASE_URL must be an http or https address, not {redact(settings.base_url)!r}"
            )
        return _open(model_id, settings)
    provider, colon, name = model_id.partition(":")
    if not colon or not provider or not name:
        raise ModelConfigurationError(
            f"model {model_id!r} has no endpoint: set ARCHMAX_API_BASE_URL and ARCHMAX_API_KEY, "
            "or name a provider's model as provider:model"
        )
    try:
        return _open(name, settings) if provider == "openai" else _from_provider(model_id, settings)
    except ImportError as error:
        raise ModelConfigurationError(
            f"model {model_id!r} needs a package that is not installed: {redact(str(error))}"
        ) from None
    except Exception as error:
        # Providers say a missing key or an unknown name each in their own class, often as a page of validation text.
        raise ModelConfigurationError(f"model {model_id!r} cannot be built: {redact(str(error))}") from None


def _open(name: str, settings: ModelSettings) -> BaseChatModel:
    from engine.models.openai_compatible import open_model

    return open_model(
        model=name,
        base_url=settings.base_url,
        api_key=settings.api_key,
        temperature=settings.temperature,
        max_tokens=settings.max_tokens,
        streaming=settings.streaming,
    )


def _from_provider(model_id: str, settings: ModelSettings) -> BaseChatModel:
    from langchain.chat_models import init_chat_model

    options: dict[str, Any] = {}
    if settings.temperature is not None:
        options["temperature"] = settings.temperature
    if settings.max_tokens is not None:
        options["max_tokens"] = settings.max_tokens
    return init_chat_model(model_id, **options)
