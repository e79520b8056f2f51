"""Real servers as separate processes, and network faults between them and a test."""
