"""The code blocks of the README and the documentation."""
