from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from pydantic import SecretStr

from engine.errors import ModelConfigurationError
from engine.models.errors import ModelScriptError
from engine.models.factory import ModelFactory, ModelSettings, ignored_model_ids, requested_id
from engine.models.script import ModelScript
from engine.models.scripted import ScriptedChatModel
from engine.spec.model import Judge, Settings, Spec, State

KEY = SecretStr("sk-secret-123456")
ENDPOINT = ModelSettings(
    model="default-model", base_url="http://127.0.0.1:1/v1", api_key=KEY, temperature=0.2
)


def spec(*states: State, model: str | None = None) -> Spec:
    return Spec(slug="shop", states={state.slug: state for state in states}, settings=Settings(model=model))


def instance() -> BaseChatModel:
    return FakeListChatModel(responses=["x"])


def test_the_requested_id_beats_the_configured_one_and_keeps_endpoint_and_sampling() -> None:
    """03 §18; 01 §15."""
    factory = ModelFactory(ENDPOINT)
    default: Any = factory.model("agent")
    asked: Any = factory.model("agent", "other-model")
    assert (default.model_name, asked.model_name) == ("default-model", "other-model")
    assert (default.temperature, asked.temperature) == (0.2, 0.2)
    assert asked.openai_api_base == "http://127.0.0.1:1/v1"


def test_there_is_one_model_object_for_each_id() -> None:
    """03 §18."""
    factory = ModelFactory(ENDPOINT)
    assert factory.model("agent") is factory.model("grader") is factory.model("agent", "default-model")
    assert factory.model("agent", "other") is factory.model("grader", "other")
    assert factory.model("agent", "other") is not factory.model("agent")


def test_a_state_asks_for_its_own_id_else_for_the_workflows() -> None:
    """01 §15."""
    workflow = spec(State("a", model="mine"), State("b"), model="ours")
    assert (requested_id(workflow, "a"), requested_id(workflow, "b")) == ("mine", "ours")
    assert requested_id(spec(State("b")), "b") is None


def test_an_instance_outranks_every_id_and_serves_graders_too() -> None:
    """03 §18; 01 §15."""
    given = instance()
    factory = ModelFactory(ENDPOINT, instance=given)
    assert factory.model("agent", "any") is given
    assert factory.model("grader", "any") is given
    judge: Any = factory.model("judge")
    assert judge.model_name == "default-model"


def test_with_an_instance_and_a_factory_the_factory_serves_graders_and_the_judge() -> None:
    """03 §18."""
    given = instance()
    asked: list[tuple[str, str | None]] = []

    def host(role: str, env: Any, requested: str | None) -> BaseChatModel:
        asked.append((role, requested))
        return instance()

    factory = ModelFactory(ENDPOINT, instance=given, host=host)
    assert factory.model("agent", "any") is given
    assert factory.model("grader", "strict") is not given
    assert factory.model("judge") is not given
    assert asked == [("grader", "strict"), ("judge", None)]


def test_a_hosts_factory_is_given_the_configuration_only_when_it_asks() -> None:
    """03 §18: a factory with its own credentials never reads `ARCHMAX_*`."""
    assert ModelFactory(ModelSettings(), host=lambda *_: instance()).model("agent") is not None

    def curious(role: str, env: Any, requested: str | None) -> BaseChatModel:
        env()
        return instance()

    with pytest.raises(ModelConfigurationError, match="ARCHMAX_API_BASE_URL, ARCHMAX_API_KEY, ARCHMAX_MODEL"):
        ModelFactory(ModelSettings(), host=curious).model("agent")


def test_the_judges_settings_are_merged_into_what_the_factory_is_told() -> None:
    """03 §18; 06 §10."""
    told: list[ModelSettings] = []

    def host(role: str, env: Any, requested: str | None) -> BaseChatModel:
        told.append(env())
        assert (role, requested) == ("judge", None)
        return instance()

    ModelFactory(ENDPOINT, host=host).model("judge", judge=Judge("strict-model", 0.0, 50))
    assert (told[0].model, told[0].temperature, told[0].max_tokens) == ("strict-model", 0.0, 50)
    assert told[0].base_url == ENDPOINT.base_url


def test_the_judges_settings_are_laid_over_the_environments() -> None:
    """06 §10."""
    judge: Any = ModelFactory(ENDPOINT).model("judge", judge=Judge(model="strict-model", max_tokens=50))
    assert (judge.model_name, judge.temperature, judge.max_tokens) == ("strict-model", 0.2, 50)
    agent: Any = ModelFactory(ENDPOINT).model("agent")
    assert agent.max_tokens is None


def test_a_hosts_factory_that_answers_with_something_else_is_refused() -> None:
    """03 §18."""
    with pytest.raises(ModelConfigurationError, match="model_factory answered with str"):
        ModelFactory(host=lambda *_: "gpt").model("agent")  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (ModelSettings(), ["ARCHMAX_MODEL"]),
        (ModelSettings(model="m", base_url="http://x/v1"), ["ARCHMAX_API_KEY"]),
        (ModelSettings(model="m", base_url="http://x/v1", api_key=SecretStr("")), ["ARCHMAX_API_KEY"]),
        (ModelSettings(model="m", base_url="ftp://u:pw@x", api_key=KEY), ["ARCHMAX_API_BASE_URL", "http"]),
        (ModelSettings(model="m"), ["'m'", "ARCHMAX_API_BASE_URL", "provider:model"]),
        (ModelSettings(model="anthropic:claude-x"), ["'anthropic:claude-x'", "langchain-anthropic"]),
        (ModelSettings(model="nobody:m"), ["'nobody:m'", "nobody"]),
    ],
)
def test_what_is_missing_is_said_in_one_line(settings: ModelSettings, words: list[str]) -> None:
    """05 §15: required only when something reads them."""
    with pytest.raises(ModelConfigurationError) as caught:
        ModelFactory(settings).model("agent")
    text = str(caught.value)
    assert [word for word in words if word not in text] == []
    assert "\n" not in text
    assert "pw" not in text


def test_a_provider_without_its_key_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """design "Models": the provider's own package and key."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelConfigurationError, match="'openai:gpt-x' cannot be built") as caught:
        ModelFactory(ModelSettings(model="openai:gpt-x")).model("agent")
    assert "OPENAI_API_KEY" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_shows_in_no_repr() -> None:
    """design "Configuration": secrets never reach `repr`."""
    assert KEY.get_secret_value() not in repr(ENDPOINT)
    assert KEY.get_secret_value() not in repr(ModelFactory(ENDPOINT).model("agent"))


def test_the_configured_script_answers_for_every_id_and_role(tmp_path: Path) -> None:
    """09 §1: relative to the workspace root; the same script for every id."""
    (tmp_path / "play.yaml").write_text("- text: hi\n")
    factory = ModelFactory(ModelSettings(model="scripted:play.yaml"), root=tmp_path)
    default, other = factory.model("agent"), factory.model("grader", "vendor/big")
    assert isinstance(default, ScriptedChatModel) and isinstance(other, ScriptedChatModel)
    assert default.script is other.script is factory.script
    assert (default.model_id, other.model_id) == ("scripted:play.yaml", "vendor/big")
    assert factory.model("agent") is default
    assert isinstance(factory.model("judge", judge=Judge("strict")), ScriptedChatModel)


def test_a_workflow_may_ask_for_a_script_of_its_workspace_only(tmp_path: Path) -> None:
    """design "Models": an id `scripted:…` is the scripted model. Documents are not trusted."""
    root = tmp_path / "ws"
    root.mkdir()
    (root / "play.yaml").write_text("- text: hi\n")
    (tmp_path / "out.yaml").write_text("- text: hi\n")
    (root / "link.yaml").symlink_to(tmp_path / "out.yaml")
    factory = ModelFactory(ENDPOINT, root=root)
    assert isinstance(factory.model("agent", "scripted:play.yaml"), ScriptedChatModel)
    for outside in (
        "scripted:../out.yaml",
        f"scripted:{tmp_path}/out.yaml",
        "scripted:link.yaml",
        "scripted:",
    ):
        with pytest.raises(ModelScriptError, match="must lie in the workspace"):
            factory.model("agent", outside)


def test_a_missing_or_malformed_script_is_an_error_before_the_first_turn(tmp_path: Path) -> None:
    """09 §1: file, line, what is wrong."""
    (tmp_path / "bad.yaml").write_text("- text: a\n- txt: b\n")
    with pytest.raises(ModelScriptError, match=r"none\.yaml: the model script cannot be read: No such file"):
        ModelFactory(ModelSettings(model="scripted:none.yaml"), root=tmp_path).check()
    with pytest.raises(ModelScriptError, match=r"bad\.yaml:2: answer 1: unknown key 'txt'"):
        ModelFactory(ModelSettings(model="scripted:bad.yaml"), root=tmp_path).check()


def test_a_cases_own_script_beats_instance_host_and_environment() -> None:
    """Ruling 19."""
    script = ModelScript.parse("case.model.yaml", "- text: hi\n")
    factory = ModelFactory(ENDPOINT, instance=instance(), host=lambda *_: instance(), script=script)
    for role in ("agent", "grader", "judge"):
        built = factory.model(role, "any")  # type: ignore[arg-type]
        assert isinstance(built, ScriptedChatModel)
        assert built.model_id == "any"


def test_checking_builds_what_the_workflows_states_will_ask_for() -> None:
    """09 §1; 05 §15."""
    workflow = spec(State("a", model="anthropic:x"), State("c", type="code", model="nobody:y"))
    with pytest.raises(ModelConfigurationError, match="anthropic:x"):
        ModelFactory(ModelSettings(model="m")).check(workflow)
    ModelFactory(ModelSettings()).check(spec(State("c", type="code")))


@pytest.mark.parametrize(
    ("has_factory", "named", "not_named"),
    [
        (False, ["'root'", "settings.model", "'one'", "'a'", "'two'", "'g'", "'four'"], ["three"]),
        (True, ["'root'", "'one'", "'a'", "'four'"], ["'two'", "three"]),
    ],
)
def test_one_warning_names_the_ids_an_instance_makes_inert(
    has_factory: bool, named: list[str], not_named: list[str]
) -> None:
    """01 §15; 03 §18."""
    workflow = spec(
        State("a", model="one"),
        State("g", type="grader", model="two"),
        State("c", type="code", model="three"),
        State("h", type="human", model="four"),
        model="root",
    )
    warning = ignored_model_ids(workflow, has_factory=has_factory)
    assert warning is not None
    assert [word for word in named if word not in warning] == []
    assert [word for word in not_named if word in warning] == []


def test_without_declared_ids_there_is_nothing_to_warn_about() -> None:
    """01 §15."""
    assert ignored_model_ids(spec(State("a")), has_factory=False) is None
