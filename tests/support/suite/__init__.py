"""How the suite runs: what a test needs, and where it may write."""
