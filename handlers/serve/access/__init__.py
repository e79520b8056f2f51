"""Decide who may do what: principals, the tokens that name them, and the hook `authorize`.

Every request to the page's server is decided here. A token that is revoked, has expired or was replaced is refused from
then on, and open event streams of its principal end. Each decision is logged to `lanebus.audit`.

Start with `credentials.py`; `access.py` puts the parts together.
"""
