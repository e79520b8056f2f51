"""What the forms of all providers share: a request's options and warnings, an answer's scaffold, names on the wire."""
