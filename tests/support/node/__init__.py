"""Node: the clients of other projects that run in it as referees, unmodified, and our own client.

`package.json` names the referees and `package-lock.json` holds their hashes; neither names an address. Our client is in
`clients/ts`.
"""
