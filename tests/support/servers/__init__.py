"""Real servers as processes of their own, and the faults of a network between them and a test."""
