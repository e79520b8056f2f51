"""One turn with a model: the call, its stream, the recorded answer, and the recovery of a lost worker's partial answer.

The start of a turn is recorded before the model is called. Start with `model_call.py`.
"""
