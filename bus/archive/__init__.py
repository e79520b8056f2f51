"""What was said long ago, out of the server: sealed segments of a session's log, chained by their SHA-256, compressed.

    async with Bus.open(archive=DirectoryArchive(Path("archive"))) as bus:
        await bus.session("s").archive()        # all there is now
        await bus.session("s").trim(before=5000)
        async for envelope in bus.session("s").read():  # from 1 on, as if nothing had been trimmed
            ...

The names of the files are `<namespace>/<session>/<first>-<last>-<sha256>.jsonl.gz`; segment.py says what is in one, and
`zcat` and `jq` read it without this package. Nothing is ever overwritten. The server holds the end of the chain in the
session's head, from where each segment names the one before it; and which segment holds a position, to find it quickly.

A file that is in no chain is left over from an archiver that was broken off or was not the first: it harms nobody, and
goes when its session is erased. An archive is as private as the log.
"""
