"""The command line, and programs that tests kill, as processes of their own."""
