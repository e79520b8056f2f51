"""Print every benchmark, compared with plain redis-py on the same embedded server, and its goal.

`--appendfsync no` removes the disk from both sides. The figures then show only the work of the clients and the server.
"""

import argparse
import platform
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from os import cpu_count
from pathlib import Path

import anyio

from bench.backends import backends
from bench.codec import decoding, encoding, there_and_back
from bench.following import many_followers, many_sessions_followed
from bench.forking import SHARED, forking
from bench.material import take
from bench.observing import observing
from bench.page import page_figures
from bench.peers import PeerFigures, peers
from bench.plain import Plain
from bench.plot import draw
from bench.publish import against_pipelines, against_xadd, many_sessions, one_at_a_time
from bench.reading import HISTORY, delivery, loading, next_context
from bench.replay import replay_growth
from bench.request import CONTEXT, requests
from bench.rounds import ROUNDS, Compared, Spread
from bench.size import MESSAGE_BYTES, NEWEST, SIZES, by_size, entry_bytes
from bench.sse import fan_out
from bench.stalled import stalled_clients
from bench.working import dead_worker, idle_worker, turn_start, turns_a_second
from lanebus import Bus
from lanebus.bus import open_server, stop_server

SCENES = (
    against_xadd,
    against_pipelines,
    many_sessions,
    one_at_a_time,
    turn_start,
    delivery,
    loading,
    encoding,
    decoding,
    there_and_back,
)


async def main(policy: str) -> None:
    """Run all benchmarks and print a table."""
    async with _fresh(policy) as (bus, plain, _):
        material = await take(bus)
        print(
            f"{platform.system()} {platform.machine()}, {cpu_count()} cores, Python {platform.python_version()}, "
            f"Valkey {await plain.server_version()}, redis-py {version('redis')}, appendfsync {policy}; "
            f"{material.source}, {material.mean_bytes} bytes a message; {ROUNDS} rounds, min / median / max\n"
        )
    messages = material.take(HISTORY)
    print(f"{'':58} {'plain redis-py':>24} {'lanebus':>24} {'ratio':>20}  goal")
    for scene in SCENES:
        async with _fresh(policy) as (bus, plain, _):
            _print(await scene(bus, plain, messages))
    async with _fresh(policy) as (bus, _, _):
        context = await next_context(bus, messages)
    print(f"\nnext turn's context at {HISTORY:,} messages, goal < 2 ms: {_ms(context)}")
    async with _fresh(policy) as (bus, _, _):
        print(f"fork of a session of {SHARED:,} entries, goal ≤ 5 ms: {_ms(await forking(bus))}")
    for form, taken in requests(messages).items():
        print(f"{form} of a warm context of {CONTEXT} messages, goal < 5 ms: {_ms(taken)}")
    await observed(policy)
    for following in (many_sessions_followed, many_followers):
        async with _fresh(policy) as (bus, _, data_dir), Bus.open(data_dir=data_dir) as other:
            for what, figure in await following(bus, other, messages):
                print(f"{what}: {figure.low:.2f} / {figure.middle:.2f} / {figure.high:.2f}")
    await working(policy)


async def working(policy: str) -> None:
    """Print turns a second, the delay after a killed worker, and the cost of an idle worker."""
    for scene in (turns_a_second, dead_worker, idle_worker):
        async with _fresh(policy) as (bus, _, data_dir):
            for what, figure in await scene(bus, data_dir):
                print(f"{what}: {figure.low:,.2f} / {figure.middle:,.2f} / {figure.high:,.2f}")


async def observed(policy: str) -> None:
    """Print what logs, metrics and tracing add to a publish. The first figure is the same bus without them."""
    async with _fresh(policy) as (bus, _, data_dir):
        messages = (await take(bus)).take(HISTORY)
        for compared in await observing(bus, data_dir, messages):
            _print(compared)


async def workers(policy: str) -> None:
    """Print the benchmarks of workers only."""
    async with _fresh(policy) as (bus, plain, _):
        _print(await turn_start(bus, plain, ()))
    await working(policy)


async def streams(policy: str) -> None:
    """Print how fast many SSE subscribers get an entry, and what they cost."""
    async with _fresh(policy) as (bus, _, data_dir):
        for what, figure in await fan_out(bus, data_dir):
            print(f"{what}: {figure.low:,.2f} / {figure.middle:,.2f} / {figure.high:,.2f}")


async def opened_page(policy: str) -> None:
    """Print what it takes to open large sessions on the page, and what an idle page costs the server."""
    async with _fresh(policy) as (bus, _, data_dir):
        for what, figure in await page_figures(bus, data_dir):
            print(f"{what}: {figure.low:,.2f} / {figure.middle:,.2f} / {figure.high:,.2f}")


async def stalled(policy: str) -> None:
    """Print what clients that do not read cost the server, and what others notice."""
    async with _fresh(policy) as (bus, _, data_dir):
        for what, figure in await stalled_clients(bus, data_dir):
            print(f"{what}: {figure.middle:,.2f}")


async def against_peers(policy: str) -> None:
    """Print the figures of lanebus beside the figures of other libraries."""
    async with _fresh(policy) as (bus, plain, data_dir), open_server(data_dir) as server:
        messages = (await take(bus)).take(HISTORY)
        print(f"{'appendfsync ' + policy:48} {'one at a time, µs':>24} {'64 callers, 1/s':>24} {'read all, 1/s':>26}")
        for row in await peers(bus, plain, server.socket, messages):
            match row:
                case PeerFigures():
                    print(f"{row.name:48} {_three(row.alone):>24} {_three(row.together):>24} {_three(row.read):>26}")
                case _:
                    print(row)


async def sizes(policy: str, plot: Path | None) -> None:
    """Print the cost of a publish and of a read in sessions of different sizes.

    Args:
        policy: the server's `appendfsync`.
        plot: file to draw the figures into, as SVG; None draws nothing.
    """
    async with _fresh(policy) as (bus, plain, data_dir):
        print(f"memory for a message of {MESSAGE_BYTES} bytes, goal ≤ 430: {await entry_bytes(bus, plain.used):.0f}")
        rows, ratio = await by_size(bus)
        print(f"\n{'entries':>10} {'publish one, µs':>24} {f'read newest {NEWEST}, µs':>24}")
        for row in rows:
            print(f"{row.size:>10,} {_three(row.publish):>24} {_three(row.newest):>24}")
        print(f"publish into {SIZES[-1]:,} to {SIZES[0]:,}, goal ≤ 1.1: {_three(ratio, 2)}")
        count, growth = await replay_growth(str(data_dir), f"size-{SIZES[-1]}")
        print(f"memory to replay {count:,} entries behind the first 10,000, goal < 64 MB: {growth:.1f} MB")
    if plot is not None:
        draw(rows, plot)


@asynccontextmanager
async def _fresh(policy: str) -> AsyncGenerator[tuple[Bus, Plain, Path]]:
    """Open a new server and its clients, so that the data of one benchmark does not slow down the next."""
    data_dir = Path(tempfile.mkdtemp(prefix="lanebus-bench-"))
    try:
        async with open_server(data_dir) as server, Bus.open(data_dir=data_dir) as bus:
            plain = Plain(str(server.socket))
            await plain.set_appendfsync(policy)
            yield bus, plain, data_dir
            await plain.close()
    finally:
        await stop_server(data_dir)  # before the directory is deleted: a running server writes into it
        shutil.rmtree(data_dir)


def _print(row: Compared) -> None:
    plain, ours = (f"{s.low:,.0f} {s.middle:,.0f} {s.high:,.0f} {row.unit}" for s in (row.plain, row.ours))
    ratio = f"{row.ratio.low:.2f} {row.ratio.middle:.2f} {row.ratio.high:.2f}"
    print(f"{row.what:58} {plain:>24} {ours:>24} {ratio:>20}  {row.goal}")


def _three(values: Spread, digits: int = 0) -> str:
    return " ".join(f"{value:,.{digits}f}" for value in (values.low, values.middle, values.high))


def _ms(taken: Spread) -> str:
    return f"{taken.low:.2f} / {taken.middle:.2f} / {taken.high:.2f} ms"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--appendfsync", choices=("always", "everysec", "no"), default="always")
    parser.add_argument("--size", action="store_true", help="cost against size instead: sessions of up to a million")
    parser.add_argument("--workers", action="store_true", help="what workers do, and nothing else")
    parser.add_argument("--observed", action="store_true", help="what logs, metrics and tracing add to a publish")
    parser.add_argument("--sse", action="store_true", help="fan-out to many SSE subscribers, beside Starlette")
    parser.add_argument("--stalled", action="store_true", help="a minute of 200 SSE clients that do not read")
    parser.add_argument("--page", action="store_true", help="large sessions on the page, in the installed Chromium")
    parser.add_argument("--peers", action="store_true", help="beside other libraries: pip install --group peers")
    parser.add_argument("--backends", nargs="?", const="", metavar="NAME", help="beside the stores of frameworks")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="with --size: draw it into this SVG")
    arguments = parser.parse_args()
    if arguments.size:
        anyio.run(sizes, arguments.appendfsync, arguments.plot)
    elif arguments.backends is not None:
        anyio.run(backends, arguments.backends)
    elif arguments.peers:
        anyio.run(against_peers, arguments.appendfsync)
    elif arguments.sse:
        anyio.run(streams, arguments.appendfsync)
    elif arguments.page:
        anyio.run(opened_page, arguments.appendfsync)
    elif arguments.stalled:
        anyio.run(stalled, arguments.appendfsync)
    elif arguments.observed:
        anyio.run(observed, arguments.appendfsync)
    elif arguments.workers:
        anyio.run(workers, arguments.appendfsync)
    else:
        anyio.run(main, arguments.appendfsync)
