"""What the codecs of seeds 002 and 003 share: one graph framework a year apart, with two spellings of some blocks."""
