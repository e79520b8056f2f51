"""Import session files of other programs into a session.

Every line is imported once, in the file's order, however often the import is repeated. Start with `importer.py`;
`format.py` defines what a format consists of.
"""
