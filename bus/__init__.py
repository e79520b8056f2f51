"""The bus: sessions as logs on Redis streams. Users import `lanebus`.

Each session is one gap-free numbered sequence. A publish is applied once or refused with a reason. Readers miss
nothing. Start with `session/session.py`, the user's view of a session, and `bus.py`, which opens it.

Each package imports only those listed before it: errors, messages, wire, storage, servers, embedded, log, reading,
media, publishing, previews, following, archive, groups, retention, session.
"""

if __name__ == "bus":  # imported from a checkout by its folder's name
    from lanebus.checkout import alias

    alias("bus")
