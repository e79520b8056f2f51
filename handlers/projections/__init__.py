"""Views of a session, folded from its log: delete them, fold again, get the same."""
