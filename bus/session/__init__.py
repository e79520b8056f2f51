"""A session as its user holds it.

`session.py` is the table of its methods. They are functions of the modules beside it: publishing, reading, checkpoints,
retention and leases.
"""
