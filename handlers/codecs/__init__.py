"""Codecs: the messages of other systems, in and out."""
