"""What the type checkers are taught about the project."""
