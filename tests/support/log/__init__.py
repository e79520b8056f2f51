"""Shared by tests of the log: one-word messages, readers, groups, traffic."""
