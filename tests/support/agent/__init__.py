"""Models that follow a script, logs of loops, and workers as processes of their own."""
