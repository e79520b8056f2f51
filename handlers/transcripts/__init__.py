"""Sessions of other programs, read into a session of ours.

Every line goes in once, in the file's order, however often an import is repeated. Start with `importer.py`; `format.py`
says what a format has to offer.
"""
