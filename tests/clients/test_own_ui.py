"""The TypeScript on the page about a UI of one's own type-checks and runs."""

import json
import os
from pathlib import Path

import anyio
import pytest

from lanebus.handlers.agent import demo_agent
from tests.support.agent.served_agent import served_agent
from tests.support.docs.blocks import blocks
from tests.support.node.client import npm
from tests.support.node.running import NODE
from tests.support.page.serving import TOKEN
from tests.support.paths import ROOT

PAGE = ROOT / "docs/how-to/own-ui.md"
BLOCKS = {block.title: block for block in blocks(PAGE) if block.language in {"ts", "tsx"}}
OPTIONS = {
    "compilerOptions": {
        **{"target": "es2022", "module": "nodenext", "jsx": "react-jsx", "strict": True, "noEmit": True},
        **{"lib": ["es2023", "dom", "dom.iterable", "dom.asynciterable"], "types": ["node"], "skipLibCheck": True},
    }
}


def project(folder: Path, client: Path) -> Path:
    """Make an application that has installed the client, with the files of the page."""
    (folder / "package.json").write_text(json.dumps({"type": "module", "private": True}))
    (folder / "tsconfig.json").write_text(json.dumps(OPTIONS))
    modules = folder / "node_modules"
    modules.mkdir()
    for each in (client / "node_modules").resolve().iterdir():
        (modules / each.name).symlink_to(each)
    (modules / "@lanebus").mkdir()
    (modules / "@lanebus/client").symlink_to(client)
    for title, block in BLOCKS.items():
        assert title is not None, f"{PAGE}:{block.line}: the block has no title"
        (folder / title).write_text(block.code)
    return folder


def test_code_of_the_page_type_checks(built_client: Path, tmp_path: Path) -> None:
    assert len(BLOCKS) == 6
    npm(project(tmp_path, built_client), "exec", "--silent", "--", "tsc", "--project", ".")


def test_hook_of_the_page_is_that_of_the_package() -> None:
    assert BLOCKS["useSession.tsx"].code == (ROOT / "clients/ts/examples/useSession.tsx").read_text()


@pytest.mark.parametrize("program", ["ask.ts", "send-file.ts"])
async def test_program_of_the_page_prints_what_it_says(built_client: Path, tmp_path: Path, program: str) -> None:
    folder = project(tmp_path, built_client)
    async with served_agent(demo_agent()) as served:
        environment = {**os.environ, "BUS_ADDRESS": served.base, "LANEBUS_TOKEN": TOKEN}
        with anyio.fail_after(120):
            done = await anyio.run_process([str(NODE), program], cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == BLOCKS[program].output
