"""The core of the agent's loop: from what the log holds, decide the next step. Start at `decision.next_decision`.

A worker folds both lanes of a session into a `SessionSnapshot` and derives its `LoopState` (`loop_state`): the open
loop, the answer that it continues (`open_answer`), the unanswered prompts and commands. `next_decision` returns one
`Decision`; the loop (`lanebus.handlers.agent.loop`) carries it out, reads the log again and asks for the next.

The parts of a decision: `limits` (how much a loop may use), `turn_numbers` (ids of loops and turns), `command_outcome`
(what becomes of an abort, a steer, an approval …), `tool_decision` (whether a call runs, waits for a person or fails),
`retry` (whether a failed model call is repeated).

Promises:

- Pure. There is no I/O here; clock and chance are arguments. The same log gives the same decision in every worker.
- Resumable. A decision follows from stored entries alone, so a worker that takes over a lost one goes on where the log
  ends. Each append of a decision has a key made from its subject, so a repeated decision adds nothing.
- Finite. Whatever a decision appends leads to another decision, and at last to `Idle`.
"""
