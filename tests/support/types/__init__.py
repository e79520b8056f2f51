"""A mypy plugin for the project."""
