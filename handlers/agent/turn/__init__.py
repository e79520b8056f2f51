"""One turn with a model: the call, its stream, the answer in the log, and what a lost worker left of one.

A turn is in the log before the model is called. Start with `model_call.py`.
"""
