"""Workers: many sessions side by side, each worked off by one task under its lease."""
