"""Uploads: files that clients send in pieces, so that a message can name them.

An upload is a file on disk until a message names it; only then the file goes to the media store. So no upload that is
incomplete, wrong or abandoned is ever among the media, and removing an upload removes all of it.

An upload belongs to a principal and a session. Only that principal can continue it, and only its messages to that
session can name it. Nobody can read it: media are read through an entry that refers to them.

Start with `uploads.py`. `folder.py` has the files on disk.
"""
