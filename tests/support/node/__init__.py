"""Node, and the clients of other projects that run in it as referees, unmodified.

`package.json` names them and `package-lock.json` holds their hashes; neither names an address.
"""
