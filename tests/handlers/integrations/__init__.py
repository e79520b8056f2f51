"""What the stores of all frameworks share."""
