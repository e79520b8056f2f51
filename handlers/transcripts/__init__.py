"""Import session files of other programs into a session.

Every line is imported once, in the file's order, even if the import is repeated. Start with `importer.py`; `format.py`
defines the interface of a format.
"""
