"""Scripted models, logs of loops, and workers as separate processes."""
