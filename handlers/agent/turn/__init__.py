"""One turn of a session's loop: decide the next step from the log, call the model, and record what it answered.

A worker folds both lanes of a session into a `SessionSnapshot` and derives a `LoopState` (`loop_state`) from it. This
state holds the open loop, the answer that the loop continues, and the unanswered prompts and commands.
`decision.next_decision` returns one `Decision`. `AgentLoop` carries this decision out, reads the log again and asks for
the next decision. The start of a turn is recorded (`record`) before the model is called (`call_model` in `loop.py`).

Promises:

- Pure decisions: there is no I/O, and time and randomness are arguments. The same log gives every worker the same
decision.
- Resumable: a decision depends on stored entries alone, so another worker continues where the log ends. Each append has
an idempotency key made from what it records, so a repeated decision adds nothing.
- Finite: every decision but `Idle` changes the log, and a sequence of decisions ends with `Idle`.
"""
