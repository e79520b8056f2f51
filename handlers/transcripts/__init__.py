"""Sessions of other programs, read into a session of ours."""
