"""Decide the next step of a session's loop from its log. Start at `decision.next_decision`.

A worker folds both lanes of a session into a `SessionSnapshot` and derives a `LoopState` (`loop_state`) from it. This
state holds the open loop, the answer that the loop continues (`open_answer`), and the unanswered prompts and commands.
`next_decision` returns one `Decision`. `AgentLoop` carries this decision out, reads the log again and asks for the next
decision.

The other modules make parts of the decision: `turn_numbers` (ids of loops and turns), `command_outcome` (the answer to
a command), `tool_decision` (whether a call runs, waits for a person or fails), `retry` (whether to call the model
again).

Promises:

- Pure: there is no I/O, and time and randomness are arguments. The same log gives every worker the same decision.
- Resumable: a decision depends on stored entries alone, so another worker continues where the log ends. Each append has
an idempotency key made from what it records, so a repeated decision adds nothing.
- Finite: every decision but `Idle` changes the log, and a sequence of decisions ends with `Idle`.
"""
