"""Strategies for messages, for logs of one lane and for the JSON of other systems."""
