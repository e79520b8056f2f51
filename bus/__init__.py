"""The bus: sessions as logs on Redis streams. Users import `lanebus`.

It promises what the README says: one gap-free numbered sequence a session, a publish that is applied once or refused
with a reason, and readers that miss nothing. Start with `session/session.py`, what a user holds, and `bus.py`, which
opens it. Packages import only those before them: errors, messages, wire, storage, servers, embedded, log, reading,
media, publishing, previews, following, archive, groups, retention, session.
"""

if __name__ == "bus":  # the folder of a checkout, imported by its own name
    from lanebus.checkout import alias

    alias("bus")
