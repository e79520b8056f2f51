"""Decide the next step of a session's loop from its log. Start at `decision.next_decision`.

A worker folds both lanes of a session into a `SessionSnapshot` and derives its `LoopState` (`loop_state`): the open
loop, the answer that it continues (`open_answer`), the unanswered prompts and commands. `next_decision` returns one
`Decision`. `AgentLoop` carries it out, reads the log again and asks for the next one.

The other modules decide parts of it: `turn_numbers` (ids of loops and turns), `command_outcome` (the answer to a
command), `tool_decision` (whether a call runs, waits for a person or fails), `retry` (whether to call the model again).

Promises:

- Pure: there is no I/O, and time and randomness are arguments. The same log gives every worker the same decision.
- Resumable: a decision depends on stored entries alone, so another worker continues where the log ends. Each append has
  a key made from its subject, so a repeated decision adds nothing.
- Finite: every decision but `Idle` changes the log, and a sequence of decisions ends with `Idle`.
"""
