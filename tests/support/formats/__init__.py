"""Samples of the messages of other systems, for the laws of all codecs."""
