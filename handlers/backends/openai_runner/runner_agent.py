"""`RunnerAgent`: an agent of OpenAI's Agents SDK that lanebus workers run."""

from collections.abc import Callable
from typing import Any

from agents import Agent, RunConfig
from agents.run_config import DEFAULT_MAX_TURNS

from lanebus.bus.errors import require_count, require_instance
from lanebus.bus.wire.keys import check_agent
from lanebus.handlers.agent.recording.recorder import Recorder
from lanebus.handlers.agent.recording.run_lease import RunLease
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.tool_reply import failed
from lanebus.handlers.backends.openai_items.answers import PROVIDER, agent_of, model_of
from lanebus.handlers.backends.openai_runner.bounds import DEFAULT_RUNNER_BOUNDS, RunnerBounds
from lanebus.handlers.backends.openai_runner.pending_run import load_run
from lanebus.handlers.backends.openai_runner.runner_run import RunnerRun

__all__ = ("RunnerAgent",)

_LOST = "Not run: its worker was lost, or the stored call is not the approved one. Call the tool again if it is needed."


class RunnerAgent:
    """An agent of the SDK as an agent of lanebus, for `lanebus worker` and `run_worker`. One object serves all
    sessions.

    The SDK's `Runner` runs it. The log is the truth: each run begins with the context of the session, so steering,
    forks and compactions work, and no other session of the SDK is needed. Answers are streamed to live followers.

    Approvals: a tool with `needs_approval` asks a person as any tool of lanebus does. The run is stored meanwhile and
    holds no worker; any worker continues it.

    Handoffs: the next message goes to the agent that the conversation was handed over to.

    Crashes: recorded answers and results are not asked for again. A tool that had started has an unknown outcome.

    Source: `Runner.run_streamed` and its hooks (0.24).
    """

    def __init__(
        self,
        agent: Agent[Any],  # Any: as the context of the SDK's own functions
        *,
        name: str = "agent",
        run_config: RunConfig | None = None,
        context: Callable[[Run], object] | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        bounds: RunnerBounds = DEFAULT_RUNNER_BOUNDS,
    ) -> None:
        """
        Args:
            agent: the agent that begins a conversation. Handoffs lead to others.
            name: the agent's name in lanebus, `[A-Za-z0-9_.-]{1,64}`.
            run_config: the SDK's settings of each run. `call_model_input_filter` must not be set.
            context: returns the SDK's context of a run, for tools and hooks. None means no context.
            max_turns: maximum number of model calls for one message. None means unlimited.
            bounds: sizes of what is stored.

        Raises:
            InvalidArgument: an argument has a wrong type.
            InvalidName: `name` does not match.
        """
        require_instance("agent", agent, Agent, "pass an `agents.Agent`")
        require_count("max_turns", max_turns, least=1, is_optional=True)
        self.name = check_agent(name, "name")
        self._agent, self._config = agent, run_config or RunConfig()
        self._context, self._max_turns, self._bounds = context, max_turns, bounds

    async def __call__(self, run: Run) -> None:
        """Answer the session's messages and commands. Return when nothing is left to do, or a person has to act.

        If cancelled, the text so far is recorded as aborted, and the next run continues.

        Args:
            run: the session and its lease.

        Raises:
            Fenced: the lease is lost.
            BusError: the log cannot be read, or refuses an append.
        """
        async with Recorder(run.session, lease=RunLease(run), bounds=run.bounds) as recorder:
            while await recorder.wait_for_work(0):
                await self._work(run, recorder)

    async def _work(self, run: Run, recorder: Recorder) -> None:
        agent = agent_of(run.snapshot.context, self._agent)
        answer = run.snapshot.loop_state.answer
        context = self._context(run) if self._context else None
        state = None
        if answer is not None and answer.open_calls:
            state = await load_run(run, answer, self._agent, context)
            if state is None:
                await _leave_lost(recorder, agent)
                return
        running = RunnerRun(
            *(run, recorder, agent),
            config=self._config,
            context=context,
            max_turns=self._max_turns,
            bounds=self._bounds,
        )
        await running.work(state)


async def _leave_lost(recorder: Recorder, agent: Agent[Any]) -> None:
    """Record results for calls of a lost worker. The SDK cannot run single calls, and the model may call again."""
    async with recorder.turn(model=model_of(agent), provider=PROVIDER) as turn:
        for call in turn.calls:
            await turn.tool_result(call, failed(call, _LOST, "skipped"))
