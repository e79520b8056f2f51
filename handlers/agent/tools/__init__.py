"""Tools: how they are declared, run and answered, and agents that are called as tools."""
