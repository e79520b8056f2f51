"""The code blocks of the README and of the documentation."""
