"""Find an agent or a model by name, for settings and the command line."""

from collections.abc import Callable
from typing import Unpack, cast

from lanebus.bus.errors import require_instance
from lanebus.handlers.agent.errors import AgentNotFound, ModelNotFound
from lanebus.handlers.agent.models.model import Model
from lanebus.handlers.agent.models.offline import OfflineModel
from lanebus.handlers.agent.models.provider_model import ModelOptions
from lanebus.handlers.agent.run import Agent
from lanebus.handlers.agent.settings import is_sync
from lanebus.handlers.projections import TargetNotFound, load_object


def load_agent(target: str) -> Agent:
    """Return the agent at `module:attribute` or `path/to/file.py:attribute`.

    For a module, the current directory is added to `sys.path`; for a file, the file's own directory is added.

    Args:
        target: such as "my_package.agents:support". The attribute may be dotted.

    Raises:
        AgentNotFound: the text has another form, there is no such module, file or attribute, or the object is not
            an agent: a plain `def`, for example.
        Exception: any error that the module raises while it is imported.
    """
    try:
        found = load_object(target, example="lanebus.handlers.agent.demo:agent")
    except TargetNotFound as error:
        raise AgentNotFound(target, error.reason) from None
    if not callable(found) or isinstance(found, type) or is_sync(found):
        name = target.rpartition(":")[2]
        raise AgentNotFound(target, f"{name!r} is no agent: use an AgentLoop or an async function of a Run")
    return cast("Agent", found)


def load_model(target: str, **options: Unpack[ModelOptions]) -> Model:
    """Return the model at `api/name`. API keys are read from the environment.

    Args:
        target: such as "anthropic/claude-sonnet-4-5", "openai/gpt-5", "openai-chat/gpt-5" or "gemini/gemini-2.5-pro".
            "offline/offline-1" needs no provider.
        options: see `ModelOptions`. The offline model ignores them.

    Raises:
        OptionUnknown: an option is not one of `ModelOptions`.
        ModelNotFound: the text has another form, or names an unknown API.
        MissingExtra: the API's SDK is not installed.
    """
    require_instance("target", target, str, 'pass a text such as "anthropic/claude-sonnet-4-5"')
    api, _, name = target.partition("/")
    if api not in _MAKERS or not name:
        raise ModelNotFound(target, tuple(_MAKERS))
    return _MAKERS[api](name, options)


def _anthropic(name: str, options: ModelOptions) -> Model:
    from lanebus.handlers.agent.models.anthropic_model import AnthropicModel  # noqa: PLC0415  # import only the SDK that is used

    return AnthropicModel(name, **options)


def _responses(name: str, options: ModelOptions) -> Model:
    from lanebus.handlers.agent.models.openai_model import OpenAIResponsesModel  # noqa: PLC0415

    return OpenAIResponsesModel(name, **options)


def _chat(name: str, options: ModelOptions) -> Model:
    from lanebus.handlers.agent.models.openai_model import OpenAIChatModel  # noqa: PLC0415

    return OpenAIChatModel(name, **options)


def _gemini(name: str, options: ModelOptions) -> Model:
    from lanebus.handlers.agent.models.gemini_model import GeminiModel  # noqa: PLC0415

    return GeminiModel(name, **options)


_MAKERS: dict[str, Callable[[str, ModelOptions], Model]] = {
    "anthropic": _anthropic,
    "openai": _responses,
    "openai-chat": _chat,
    "gemini": _gemini,
    "offline": lambda name, _: OfflineModel(name=name),
}
