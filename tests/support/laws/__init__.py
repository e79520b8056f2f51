"""The model of the log, the faults that the laws inject, and planted mutants."""
