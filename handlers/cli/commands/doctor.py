"""`lanebus doctor`: look for what loses messages or makes commands fail."""

import platform
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, cast
from urllib.parse import unquote, urlsplit

import anyio
import click

from lanebus.bus import Bus, Log, NamespaceLog, check_stored_form, open_server
from lanebus.bus.errors import BusError, Refused, SetupError, Unavailable, UnsafeServer
from lanebus.bus.messages import ExtensionMessage
from lanebus.bus.servers import (
    Endpoint,
    OneServer,
    Pool,
    Reply,
    Topology,
    answered,
    check_durability,
    read_info,
    topology_at,
    transport_risk,
)
from lanebus.bus.storage import BlobStore, Folder, Objects, object_store_at, store_at
from lanebus.bus.text import without_secrets
from lanebus.bus.wire import Keys, check_namespace
from lanebus.handlers.cli.access import OPEN_SECONDS, open_bus, remember, run
from lanebus.handlers.cli.errors import ServerSilent, next_step
from lanebus.handlers.cli.exits import ExitCode
from lanebus.handlers.cli.options import Settings, ViewCommand
from lanebus.handlers.cli.output import Output
from lanebus.handlers.cli.server_checks import (
    SETTINGS,
    Finding,
    ServerFacts,
    check_clock,
    check_replica,
    check_rights,
    check_server,
    error,
    ok,
    warning,
)

_WIDEST = len("aof-load-truncated")


@click.command("doctor", cls=ViewCommand)
@click.option(
    "--write",
    "writes",
    is_flag=True,
    help="Also publish, read, lease and erase in a new namespace, which is removed, and write to object stores.",
)
@click.pass_context
def command(ctx: click.Context, *, writes: bool) -> int:
    """Look for causes of lost messages and of failing commands, and show a remedy for each. Changes nothing on the
    server, unless --write is given.

    \b
    It checks
    - the versions of lanebus, Python, redis-py and the server, and servers with known bugs,
    - local modules that hide installed ones,
    - settings of the server and of its replicas that lose messages in a crash or a failover,
    - whether the log was emptied or is an older copy, as far as a worker or `lanebus serve` knows it,
    - full memory, missing replicas, a failing disk and too many clients, which refuse messages,
    - settings that end connections, or refuse what is large,
    - the clock of the server, the rights of its user, and the schema of the namespace,
    - the stores of --archive and --media, with a file that is written and removed.

    If the server has users, run it twice: as an administrator for the server's settings, and as the user of your
    workers for that user's rights. Settings that the user may not read are a warning.

    The exit code is 7 if there is an error, and 0 if there are only warnings. As JSON, each line is a finding: level,
    check, text, remedy, node.

    \b
    Example: lanebus doctor --url redis://localhost:6379
    """
    settings, output = Settings.of(ctx), Output.of(ctx)

    async def main() -> list[Finding]:
        return await run_checks(settings, seconds=OPEN_SECONDS, writes=writes)

    findings = [
        each._replace(text=without_secrets(each.text), remedy=without_secrets(each.remedy)) for each in run(main)
    ]
    for each in findings:
        if output.is_json:
            output.json({**each._asdict(), "remedy": each.remedy or None, "node": each.node or None})
        else:
            place = f"{each.node}: " if each.node else ""
            output.line(f"{each.level:<8} {each.check:<{_WIDEST}}  {place}{each.text}")
            if each.remedy:
                output.line(f"{'':<8} {'':<{_WIDEST}}  hint: {each.remedy}")
    return ExitCode.FAULTS if any(each.level == "error" for each in findings) else ExitCode.DONE


async def run_checks(
    settings: Settings, *, seconds: float, writes: bool = False, node_seconds: float = 3.0
) -> list[Finding]:
    """Return the findings on the installation, and on the servers and stores that the settings name.

    Args:
        settings: which bus to look at. The embedded server is started if it does not run.
        seconds: longest time for all questions to the servers, for each store, and for the write.
        writes: whether to publish, read and erase in a namespace of its own, and to write to object stores.
        node_seconds: longest time for all questions to one replica.
    """
    findings = [*check_versions(), *check_imports(Path.cwd())]
    for what, place in (("archive", settings.archive), ("media", settings.media)):
        if place is not None:
            findings.append(await try_store(what, place, seconds=seconds, writes=writes))
    try:
        async with AsyncExitStack() as stack:
            if settings.url is None:
                embedded = await stack.enter_async_context(open_server(settings.data_dir))
                topology: Topology = OneServer(Endpoint.at_socket(str(embedded.socket)))
            else:
                topology = topology_at(settings.url)
            pool = topology.pool(1)
            stack.push_async_callback(pool.close)
            is_reached = False
            with anyio.move_on_after(seconds) as timeout:
                is_reached = await _servers(settings, topology, pool, findings, node_seconds)
            if timeout.cancelled_caught:
                raise ServerSilent(seconds)
            if writes and is_reached:
                findings.append(await try_write(settings, pool, seconds=seconds))
    except BusError as fault:
        findings.append(_fault(fault))
    return findings


def _fault(fault: BusError, node: str = "") -> Finding:
    return error("server", fault.fault, next_step(fault))._replace(node=node)


class _Node(NamedTuple):
    """What one server said."""

    endpoint: Endpoint
    facts: ServerFacts
    replicas: tuple[tuple[str, int], ...]
    """the addresses of its replicas, as it sees them"""
    before: float
    """time of this machine before it was asked for its time, in seconds UTC"""
    moment: float
    """its time"""
    after: float


async def _servers(
    settings: Settings, topology: Topology, pool: Pool, findings: list[Finding], node_seconds: float
) -> bool:
    """Add the findings on the servers. An error leaves those that were made before it.

    Returns:
        Whether all primaries answered.
    """
    findings.append(_transport(settings.url))
    keys = Keys(check_namespace(settings.namespace))
    nodes = list[_Node]()
    endpoints = await topology.primaries()
    for endpoint in endpoints:
        try:
            nodes.append(await _ask(endpoint))
        except BusError as fault:  # the other servers are still asked
            findings.append(_fault(fault, endpoint.address))
    if len(nodes) == len(endpoints):
        longest = max(node.after - node.before for node in nodes)
        findings.append(ok("server", f"{len(nodes)} reached, answered in {longest * 1000:.0f} ms"))
    page_bytes = None if settings.bounds is None else settings.bounds.log.page_bytes
    for node in nodes:
        found = check_server(node.facts, page_bytes=page_bytes)
        found.append(check_clock(node.before, node.moment, node.after))
        findings += [each._replace(node=node.endpoint.address) for each in found]
    await _replicas(nodes, findings, node_seconds)
    if len(nodes) < len(endpoints):
        return False
    try:
        findings += await _losses(pool, keys, settings)
    except Refused as refusal:
        if refusal.code != "NOPERM":
            raise
        if not refusal.command:  # all keys of the namespace are refused
            findings.append(_of_other_namespace(keys, _user(settings.url)))
            return False
    findings += await _rights(topology, keys, _user(settings.url))
    findings += await _default_user(pool, [node.facts.info for node in nodes], keys)
    findings.append(await _namespace(pool, keys))
    return True


async def _ask(endpoint: Endpoint) -> _Node:
    """Ask one server for its time, state, replicas and settings.

    Raises:
        Refused: the user may not run INFO or TIME.
        Unavailable: as for `Endpoint.connect`.
    """
    connection = await endpoint.connect()
    try:
        before = time.time()
        moment = cast("Sequence[bytes]", await connection.call("TIME"))
        after = time.time()
        info, role, config = await connection.call_many([("INFO",), ("ROLE",), ("CONFIG", "GET", *SETTINGS)])
    finally:
        await connection.close()
    settings = None
    if not isinstance(config, Refused):
        words = [word.decode(errors="replace") for word in cast("Sequence[bytes]", config)]
        settings = dict(zip(words[::2], words[1::2], strict=True))
    facts = ServerFacts(read_info(cast("bytes", answered(info))), settings)
    return _Node(endpoint, facts, _addresses(role), before, int(moment[0]) + int(moment[1]) / 1e6, after)


def _addresses(role: Reply | Refused) -> tuple[tuple[str, int], ...]:
    """Return the addresses of the replicas that a primary names in its ROLE."""
    match role:
        case [b"master", _, list(replicas)]:
            return tuple((host.decode(), int(port)) for host, port, *_ in cast("list[list[bytes]]", replicas))
        case _:
            return ()


async def _replicas(nodes: Sequence[_Node], findings: list[Finding], seconds: float) -> None:
    """Add the findings on the replicas. They are asked at the same time, with the login of their primaries."""

    async def ask(endpoint: Endpoint) -> None:
        try:
            with anyio.fail_after(seconds):
                found = check_replica((await _ask(endpoint)).facts)
        except (BusError, TimeoutError) as fault:
            why = fault.fault if isinstance(fault, BusError) else f"no answer within {seconds:g} s"
            remedy = (
                "look at appendonly and maxmemory-policy of it: a failover may promote it. Users are not replicated"
            )
            found = [warning("replica", f"the replica could not be asked, so its settings are unknown: {why}", remedy)]
        findings.extend(each._replace(node=endpoint.address) for each in found)

    async with anyio.create_task_group() as tasks:
        for node in nodes:
            for address in node.replicas:
                tasks.start_soon(ask, node.endpoint.at(*address))


async def _losses(pool: Pool, keys: Keys, settings: Settings) -> list[Finding]:
    """Tell of an emptied or older log that a process has seen and no person has accepted."""
    namespace = NamespaceLog(Log(pool, keys))
    await remember(namespace, settings)
    losses = await namespace.unaccepted()
    return [error("log", loss.text, loss.remedy(namespace.name)) for loss in losses] or [
        ok("log", "no process has found that the log was emptied or is an older copy")
    ]


def _of_other_namespace(keys: Keys, user: str) -> Finding:
    name = keys.namespace
    remedy = f"name the namespace that the user is for with --namespace, or run `lanebus acl --namespace {name}`"
    return error("rights", f"the user {user!r} may not use the keys of namespace {name!r}", remedy)


def _transport(url: str | None) -> Finding:
    risk = transport_risk(url) if url else None
    return (
        ok("encryption", "no other machine can read the connection") if risk is None else warning("encryption", *risk)
    )


def _user(url: str | None) -> str:
    """Return the user that a URL names; "default" if the URL names no user, because the server uses this name."""
    return unquote((url and urlsplit(url).username) or "default")


async def _rights(topology: Topology, keys: Keys, user: str) -> list[Finding]:
    connection = await topology.route(keys.sessions(0)).connect()
    try:
        return await check_rights(connection, keys, user)
    finally:
        await connection.close()


async def _default_user(pool: Pool, infos: Sequence[Mapping[str, str]], keys: Keys) -> list[Finding]:
    """Check that a server that loads its file as the default user lets that user write."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the other risks have findings of their own
            await check_durability(pool, infos, keys)
    except UnsafeServer as fault:
        return [error("default user", fault.fault, fault.remedy)]
    return [ok("default user", "a restart of the server loses no message because of the default user's rights")]


async def _namespace(pool: Pool, keys: Keys) -> Finding:
    """Check that this version of lanebus reads what the namespace holds."""
    try:
        buckets, schema = cast("list[bytes | None]", await pool.call("HMGET", keys.config, "buckets", "schema"))
        if buckets is None or schema is None:
            return ok("namespace", f"{keys.namespace!r} holds nothing yet")
        check_stored_form(keys.namespace, buckets=buckets, schema=schema)
    except Refused as refusal:
        text = f"it is unknown which schema {keys.namespace!r} has: the server refused to read it with {refusal.code}"
        return warning("namespace", text, next_step(refusal))
    except BusError as fault:
        return error("namespace", fault.fault, next_step(fault))
    return ok("namespace", f"{keys.namespace!r} has the schema that this version reads")


# Try what the bus does: write to a store, and with `--write` to the server. All that was written is removed.


async def try_store(what: str, place: str, *, seconds: float, writes: bool) -> Finding:
    """Check that a store of media or of an archive can be used. Return one finding.

    Into a directory, a file is written and removed again, and so are missing directories.

    Args:
        what: "archive" or "media".
        place: directory or URL of the store.
        seconds: longest time.
        writes: whether to write to an object store too; otherwise it is only asked for a blob that it does not have.
    """
    try:
        with anyio.fail_after(seconds):
            blobs = store_at(
                place,
                lambda path: cast("BlobStore", Folder(path, f"{what} directory")),
                lambda url: Objects(object_store_at(url, f"{what} store"), f"{what} store"),
            )
            if isinstance(blobs, Folder):
                async with _without_traces(Path(place)):
                    await _store_once(blobs)
            elif writes:
                await _store_once(blobs)
            else:
                await blobs.head(f"{_trial_name()}/probe")
                return ok(what, "the store answers; --write tries to write to it")
    except TimeoutError:
        return error(what, f"the {what} store did not answer within {seconds:g} s", "check its address and the network")
    except BusError as fault:
        return error(what, fault.fault, next_step(fault))
    return ok(what, "the store can be written, read and cleared")


async def try_write(settings: Settings, pool: Pool, *, seconds: float) -> Finding:
    """Publish, read, lease and erase a session in a namespace of its own. Return one finding.

    Args:
        settings: which bus to use, except its namespace and stores.
        pool: connections to the same servers, for the removal of the namespace.
        seconds: longest time to write, and for the removal.
    """
    namespace = _trial_name()
    trial = settings._replace(namespace=namespace, media=None, archive=None, redact=None)
    try:
        with anyio.fail_after(seconds):
            async with open_bus(trial) as bus:
                await _use_session(bus, seconds)
        finding = ok("write", "a message was published, read and erased, and a session was leased")
    except TimeoutError:
        text = f"the server did not complete a write within {seconds:g} s"
        finding = error("write", text, "look at its log and its load; `lanebus top` shows waiting work")
    except (SetupError, Unavailable) as fault:
        finding = error("write", f"a write failed: {fault.fault}", next_step(fault))
        if "NOPERM" in fault.fault:
            text = "whether a write succeeds is unknown: the user may not write to a namespace made for the trial"
            finding = warning("write", text, "run it as a user that may write to all keys")
    except BusError as fault:
        finding = error("write", f"a write failed: {fault.fault}", next_step(fault))
    left = await _remove_keys(pool, namespace, seconds) if finding.level != "warning" else ""
    return _keys_left(finding, namespace, left) if left else finding


def _keys_left(finding: Finding, namespace: str, why: str) -> Finding:
    text = f"{finding.text}; keys of the namespace {namespace} may be left: {why}"
    if finding.level == "error":
        return finding._replace(text=text)
    return warning("write", text, f"delete the keys that begin with {namespace}:")


async def _use_session(bus: Bus, seconds: float) -> None:
    session = bus.session("trial")
    receipt = await session.publish(ExtensionMessage.of("doctor.trial"), seconds=seconds)
    async with aclosing(session.read()) as entries:
        read = [envelope.position async for envelope in entries]
    if read != [receipt.position]:
        raise Unavailable("what was published was not read back", "run `lanebus verify --all`")
    async with session.lease("doctor", wait=0.0):
        pass
    await session.erase()


async def _remove_keys(pool: Pool, namespace: str, seconds: float) -> str:
    """Remove all keys of a namespace. Return why some may be left; "" if none is."""
    try:
        with anyio.fail_after(seconds, shield=True):
            async with aclosing(pool.scan(f"{namespace}:*")) as pages:
                async for page in pages:
                    for reply in await pool.call_many([("UNLINK", key.decode()) for key in page]):
                        answered(reply)
    except TimeoutError:
        return f"not all were found within {seconds:g} s"
    except BusError as fault:
        return fault.fault
    return ""


async def _store_once(blobs: BlobStore) -> None:
    """Write a blob in a folder of its own, read it, and clear the folder."""
    folder, data = _trial_name(), b"lanebus doctor"
    try:
        await blobs.put_if_absent(f"{folder}/probe", data)
        if await blobs.get(f"{folder}/probe") != data:
            raise Unavailable("the store returned other bytes than were written", "choose another store")
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(5.0), suppress(BusError):
            await blobs.clear(folder)


@asynccontextmanager
async def _without_traces(path: Path) -> AsyncGenerator[None]:
    """After the block, remove the directories on a path that were missing before it: they would be this user's."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    try:
        yield
    finally:
        for each in missing:
            with suppress(OSError):  # it was not created, or is in use meanwhile
                each.rmdir()


def _trial_name() -> str:
    """Return a name that nothing else has, for a namespace or a folder."""
    return f"doctor-{token_hex(8)}"


# Check the installation: versions of packages, and local modules that hide installed ones.

_REDIS = (8, 1), (9, 0)
"""the versions of redis-py that lanebus works with: from the first, below the second"""

_NEEDED = ("lanebus", "redis", "hiredis", "anyio", "pydantic", "click")
"""top-level modules that a local module of the same name hides"""

_SHORT = ("bus", "handlers")
"""short names of packages, in a checkout alone"""


def check_versions(find: Callable[[str], str] = version) -> list[Finding]:
    """Report the versions of lanebus, Python and redis-py, and check that redis-py is supported.

    Args:
        find: returns the version of an installed distribution, or raises PackageNotFoundError.
    """
    findings = [ok("versions", f"lanebus {_version_of(find, 'lanebus')}, Python {platform.python_version()}")]
    client = _version_of(find, "redis")
    numbers = tuple(int(part) for part in client.split(".")[:2] if part.isdigit())
    if _REDIS[0] <= numbers < _REDIS[1]:
        return [*findings, ok("versions", f"redis-py {client}, hiredis {_version_of(find, 'hiredis')}")]
    wanted = next((each for each in _requirements() if each.startswith("redis")), "redis[hiredis]>=8.1,<9")
    return [*findings, error("versions", f"redis-py {client} is not supported", f"pip install '{wanted}'")]


def check_imports(folder: Path, *, is_checkout: bool | None = None) -> list[Finding]:
    """Look for modules in a folder that hide modules that lanebus imports.

    `python -m lanebus` and `lanebus worker` search the working directory first.

    Args:
        folder: the working directory.
        is_checkout: whether lanebus runs from a checkout, where `import bus` works too; None detects it.
    """
    own = _place_of("lanebus")
    if is_checkout is None:
        is_checkout = own is not None and (own / "bus").is_symlink()
    findings: list[Finding] = []
    for name in (*_NEEDED, *(_SHORT if is_checkout else ())):
        local = _local_module(folder, name)
        if local is None or local.resolve() == _place_of(name) or (own and local.resolve() == (own / name).resolve()):
            continue
        text = f"{local} hides the installed module {name!r} in this directory"
        make = warning if name in _SHORT else error
        findings.append(make("imports", text, f"rename {local.name}, or start lanebus in another directory"))
    return findings or [ok("imports", f"no module in {folder} hides one that lanebus imports")]


def _version_of(find: Callable[[str], str], name: str) -> str:
    try:
        return find(name)
    except PackageNotFoundError:
        return "(not installed)"


def _requirements() -> Sequence[str]:
    try:
        return requires("lanebus") or ()
    except PackageNotFoundError:
        return ()


def _local_module(folder: Path, name: str) -> Path | None:
    """Return the module or package of this name in a folder; None if there is none."""
    package, module = folder / name, folder / f"{name}.py"
    if (package / "__init__.py").is_file():
        return package
    return module if module.is_file() else None


def _place_of(name: str) -> Path | None:
    """Return the folder of the imported package, or None."""
    spec = find_spec(name)
    return Path(spec.origin).resolve().parent if spec is not None and spec.origin is not None else None
