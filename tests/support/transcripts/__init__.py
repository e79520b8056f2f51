"""Sessions as files of other systems."""
