"""Fixtures of the laws."""

from tests.support.laws.crew import forks

__all__ = ("forks",)
