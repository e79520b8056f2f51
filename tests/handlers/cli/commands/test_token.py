"""`lanebus token` and the options of `lanebus serve` that use its files."""

import json
import os
import re
import signal
import stat
from pathlib import Path

import httpx2
import pytest

from lanebus.access import new_key, verify_token
from lanebus.bus.messages import CONTROLS, Lane
from lanebus.handlers.serve import ACTIONS
from tests.support.cli.command_line import CommandLine
from tests.support.paths import ROOT

pytestmark = pytest.mark.full


def key_of(lanebus: CommandLine, folder: Path) -> Path:
    file = folder / "lanebus.key"
    assert lanebus("token", "key", str(file)).code == 0
    return file


def test_a_signed_token_has_the_rights_of_its_options_and_few_else(lanebus: CommandLine, tmp_path: Path) -> None:
    file = key_of(lanebus, tmp_path)
    before = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    refused = lanebus("token", "key", str(file))
    assert (refused.code, file.read_text(), "exists" in refused.err) == (2, before, True)
    sign = ("token", "sign", "--key-file", str(file), "--name", "ann")
    options = ("--session", "a-*", "--session", "b", "--agent", "sales", "--lane", "extension", "--action", "send")
    keys = [before.strip()]
    found = [
        verify_token(str(json.loads(lanebus(*sign, "--json", *more).out)["token"]), keys) for more in ((), options)
    ]
    assert [(each.name, each.actions, each.sessions, each.agents, each.lanes) for each in found] == [
        ("ann", ("read",), ("*",), ("*",), frozenset(Lane)),
        ("ann", ("send",), ("a-*", "b"), ("sales",), frozenset({Lane.EXTENSION})),
    ]
    plain = lanebus(*sign)
    token = verify_token(plain.out.strip(), keys)
    assert (token.token_id in plain.err, plain.out.strip() in plain.err, "chmod" in plain.err) == (True, False, False)
    file.chmod(0o644)
    answer = lanebus(*sign)
    assert (answer.code, f"chmod 600 {file}" in answer.err) == (0, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sign", "--key-file", "{folder}/none", "--name", "a"), "none does not exist"),
        (("sign", "--key-file", "{folder}/none", "--name", "a"), "`lanebus token key FILE`"),
        (("sign", "--key-file", "{folder}/empty", "--name", "a"), "empty holds no key"),
        (("sign", "--key-file", "{folder}/image", "--name", "a"), "image cannot be read: it is no UTF-8 text"),
        (("sign", "--key-file", "{folder}/weak", "--name", "a"), "lanebus token key"),
        (("sign", "--key-file", "{folder}/weak", "--name", ""), "name"),
        *(
            (("sign", "--key-file", "{folder}/good", "--name", "a", option, value), said)
            for option, value, said in (
                ("--action", "fly", "--action is 'fly'"),
                ("--action", "fly", "the actions are *, read,"),
                ("--action", "reads", "did you mean 'read'?"),
                ("--action", "command.fly", "--action is 'command.fly'"),
                ("--action", "command.aprove", "did you mean 'command.approve'?"),
                ("--action", "command.*", "'command', which includes all below it"),
                ("--session", "*foo", "--session is '*foo'"),
                ("--session", "te*am-*", "only at the end"),
                ("--session", "team/1", "it can match nothing"),
                ("--agent", "a b", "--agent is 'a b'"),
                *(("--hours", hours, "--hours is") for hours in ("nan", "inf", "1e300", "87601")),
                *(("--hours", hours, "--hours") for hours in ("0", "-1")),
            )
        ),
        (("revoke", "--revoked-file", "{folder}", "x"), "{folder}"),
        (("revoke", "--revoked-file", "{folder}/r", "# x"), "begins with #"),
        (("revoke", "--revoked-file", "{folder}/r", "a\nb"), "not printable"),
    ],
)
def test_a_wrong_use_names_the_fault(lanebus: CommandLine, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "weak").write_text("secret")
    (tmp_path / "good").write_text(new_key())
    (tmp_path / "empty").write_text("# none yet\n")
    (tmp_path / "image").write_bytes(b"\xff\x00")
    answer = lanebus("token", *(word.format(folder=tmp_path) for word in words))
    assert answer.code in {2, 6}
    assert said.format(folder=tmp_path) in answer.err
    assert "Traceback" not in answer.err


def test_every_action_that_a_route_asks_for_can_be_signed_and_is_listed(lanebus: CommandLine) -> None:
    sources = "".join(path.read_text() for path in (ROOT / "handlers/serve/api").glob("*.py"))
    asked = set(re.findall(r'"(read\.\w+|send|hand_over|fork|redrive|trim|close|reopen)"', sources))
    assert {each for each in ACTIONS if not each.startswith("command")} == {*asked, "*", "read"}
    assert {each.removeprefix("command.") for each in ACTIONS if each.startswith("command.")} == {*CONTROLS}
    page = (ROOT / "docs/how-to/access.md").read_text()
    assert [each for each in ACTIONS if f"`{each}`" not in page] == []
    shown = "".join(lanebus("token", "sign", "--help").out.split())
    assert [each for each in ACTIONS if each not in shown] == []


def test_a_server_takes_its_tokens_from_files_and_follows_a_revocation(lanebus: CommandLine, tmp_path: Path) -> None:
    key, revoked, start = key_of(lanebus, tmp_path), tmp_path / "revoked", tmp_path / "start"
    start.write_text("of-the-file\n")
    assert lanebus("token", "revoke", "--revoked-file", str(revoked)).code == 0
    signed = json.loads(lanebus("token", "sign", "--key-file", str(key), "--name", "ann", "--json").out)
    files = ("--token-file", str(start), "--key-file", str(key), "--revoked-file", str(revoked))
    with lanebus.running("serve", "--port", "0", *files) as process:
        url = process.out.readline().strip()

        def get(token: str = str(signed["token"])) -> int:
            return httpx2.get(f"{url}api/access", headers={"Authorization": f"Bearer {token}"}).status_code

        assert (get(), get("of-the-file")) == (200, 200)
        assert lanebus("token", "revoke", signed["id"], "--revoked-file", str(revoked)).code == 0
        for _ in range(1_000):  # each request takes some milliseconds
            if get() == 401:
                break
        assert get() == 401


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("words", "is_of_environment"),
    [
        (("--token-file", "{folder}/start"), False),
        (("--token-file", "{folder}/start", "--token", "of-the-start"), False),
        (("--token-file", "{folder}/start", "--reader-token-file", "{folder}/reader"), False),
        ((), True),
    ],
)
def test_a_token_that_a_service_is_given_is_not_in_its_output(
    lanebus: CommandLine, tmp_path: Path, words: tuple[str, ...], is_of_environment: bool, form: str
) -> None:
    (tmp_path / "start").write_text("of-the-file\n")
    (tmp_path / "reader").write_text("of-readers\n")
    env = {"LANEBUS_TOKEN": "of-the-start", "LANEBUS_READER_TOKEN": "of-readers"} if is_of_environment else {}
    given = [word.format(folder=tmp_path) for word in words]
    with lanebus.fed("serve", "--port", "0", "--log-format", form, *given, env=env) as process:
        url = process.out.readline().strip()
        token = "of-the-start" if is_of_environment else "of-the-file"
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx2.get(f"{url}api/access", headers=headers).status_code == 200
        process.send_signal(signal.SIGTERM)
        rest = "".join(process.communicate(b""))
    assert url.endswith("/")
    assert [each for each in ("of-the-file", "of-the-start", "of-readers") if each in url + rest] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--token-file", "{folder}/none"), "none does not exist"),
        (("--key-file", "{folder}/weak"), "lanebus token key"),
        (("--token-file", "{folder}/weak", "--reader-token-file", "{folder}/weak"), "both tokens are the same"),
        (("--authorize", "json:dumps"), "it is no async function"),
        (("--identify", "nosuch:thing"), "there is no module"),
        (("--allow-origin", "*"), "name each origin"),
        (("--allow-origin", "https://a.example/"), "leave out the path: https://a.example"),
        (("--allow-media-url", "https://*.example"), "leave out the *"),
        (("--allow-media-url", "cdn.example"), "write it as https://cdn.example.com"),
        (("--trusted-proxy", "proxy"), "write an IP address or a network"),
        (("--base-path", "/api"), "the server itself has /api/"),
    ],
)
def test_serve_refuses_wrong_options(lanebus: CommandLine, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "weak").write_text("secret")
    answer = lanebus("serve", "--port", "0", *(word.format(folder=tmp_path) for word in words))
    assert answer.code == 2
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_a_list_of_revoked_tokens_keeps_its_lines_and_other_files_stay(lanebus: CommandLine, tmp_path: Path) -> None:
    header = "# lanebus: revoked tokens"
    files = {"none": None, "empty": "", "cut": "0f3a9c1e2b7d4a60\nname:bob", "own": f"of-ann\n{header}\n"}
    for name, content in files.items():
        file = tmp_path / name
        if content is not None:
            file.write_text(content)
        for token_id in ("of-eve", "of-tom"):
            assert lanebus("token", "revoke", token_id, "--revoked-file", str(file)).code == 0
        kept = (content or "").splitlines()
        assert file.read_text().splitlines() == [*kept, *({header} - {*kept}), "of-eve", "of-tom"]
    key, start, image = key_of(lanebus, tmp_path), tmp_path / "start", tmp_path / "image"
    start.write_text("of-the-file\n")
    image.write_bytes(b"\xff\x00")
    for file in (key, start, image):
        before = file.read_bytes()
        refused = lanebus("token", "revoke", "--name", "alice", "--revoked-file", str(file))
        assert (refused.code, file.read_bytes(), "Traceback" in refused.err) == (2, before, False)
        assert f"{file} is no list of revoked tokens, and was not changed" in refused.err


def test_a_revoked_name_refuses_later_tokens_and_says_how_to_undo_it(lanebus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "revoked"
    said = lanebus("token", "revoke", "--name", "alice", "--revoked-file", str(file)).err
    assert "later" in said
    assert f"delete name:alice from {file}" in said
    assert "sign later" in " ".join(lanebus("token", "revoke", "--help").out.split())
    token = lanebus("token", "revoke", "eyJh.eyJz.c2ln", "--revoked-file", str(file))
    assert (token.code, "a token, not its id" in token.err) == (2, True)


@pytest.mark.parametrize("option", ["--token-file", "--reader-token-file", "--key-file", "--revoked-file"])
def test_a_file_that_all_may_write_and_a_pipe_are_refused(lanebus: CommandLine, tmp_path: Path, option: str) -> None:
    file, pipe = key_of(lanebus, tmp_path), tmp_path / "pipe"
    file.chmod(0o602)
    os.mkfifo(pipe)
    answer = lanebus("serve", "--port", "0", option, str(file))
    assert (answer.code, f"every user may write {file}" in answer.err, "chmod 600" in answer.err) == (2, True, True)
    answer = lanebus("serve", "--port", "0", option, str(pipe))
    assert (answer.code, f"{pipe} is no regular file" in answer.err) == (2, True)
    if option == "--key-file":
        assert "chmod 600" in lanebus("token", "sign", "--key-file", str(file), "--name", "a").err
        sign = lanebus("token", "sign", "--key-file", str(pipe), "--name", "a")
        assert (sign.code, f"{pipe} is no regular file" in sign.err) == (2, True)
    if option == "--revoked-file":
        revoke = lanebus("token", "revoke", "--name", "a", "--revoked-file", str(pipe))
        assert (revoke.code, f"{pipe} is no list of revoked tokens" in revoke.err) == (2, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_key_of_another_user_signs_with_a_warning(lanebus: CommandLine, tmp_path: Path) -> None:
    file = key_of(lanebus, tmp_path)
    os.chown(file, 4711, -1)
    answer = lanebus("token", "sign", "--key-file", str(file), "--name", "a")
    assert (answer.code, f"{file} belongs to user 4711" in answer.err) == (0, True)
