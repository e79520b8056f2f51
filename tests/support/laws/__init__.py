"""The model of the log, the faults that strike at it, and the planted mutants."""
