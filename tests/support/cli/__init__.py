"""The command line, and programs that tests kill, as separate processes."""
