"""The sample cases of the folder next to the repository."""
