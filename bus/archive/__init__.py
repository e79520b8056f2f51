"""The archive holds old entries of sessions in compressed files outside of the server, chained by their SHA-256.

    async with Bus.open(archive=DirectoryArchive(Path("archive"))) as bus:
        await bus.session("s").archive()        # all entries there are now
        await bus.session("s").trim(before=5000)
        async for envelope in bus.session("s").read():  # from position 1, as if nothing had been trimmed
            ...

A file, called a segment, is `<namespace>/<session>/<first>-<last>-<sha256>.jsonl.gz`. `segment.py` describes its
content, which `zcat` and `jq` can read without this package. Files are never overwritten.

Each segment names the previous segment of its session. The session's head on the server names the last segment. To find
segments quickly, the server also stores an index of segments by position.

Start with `archive.py`, which writes segments and reads them.

If an archiver is interrupted, or another archiver was faster, its last file is in no chain. Such a file is harmless,
and is deleted when its session is erased. An archive needs the same access control as the log.
"""
