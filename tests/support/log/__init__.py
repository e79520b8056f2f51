"""What tests of the log share: messages of one word, readers, groups, traffic."""
