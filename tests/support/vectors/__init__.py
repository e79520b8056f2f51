"""The sample cases of the directory next to the repository."""
