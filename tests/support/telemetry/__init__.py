"""Recorded spans."""
