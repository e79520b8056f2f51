"""The package `@lanebus/client`: its size, its types, its own tests, and what it packs."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

from tests.support.node.client import node_path, npm
from tests.support.node.running import NODE
from tests.support.paths import ROOT

SOURCE = ROOT / "clients/ts"


def test_client_is_small_when_it_is_minified(built_client: Path) -> None:
    minify = ("exec", "--silent", "--", "esbuild", "dist/index.js", "--bundle", "--minify", "--format=esm")
    assert 1_000 < len(npm(built_client, *minify, "--log-level=warning").encode()) < 8_192


def test_types_fit_the_tests_and_the_examples_and_the_client_s_own_tests_pass(built_client: Path) -> None:
    npm(built_client, "run", "check")
    npm(built_client, "test")


def test_package_holds_the_built_client_and_the_examples_and_nothing_else(built_client: Path) -> None:
    packed = npm(built_client, "pack", "--dry-run", "--ignore-scripts", "--json", "--silent")
    (told,) = json.loads(packed)
    files = {each["path"] for each in told["files"]}
    modules = {path.stem for path in (built_client / "src").glob("*.ts")}
    assert "schema" in modules
    assert files == {
        *("LICENSE", "README.md", "package.json"),
        *(f"dist/{name}{suffix}" for name in modules for suffix in (".js", ".d.ts")),
        *(f"examples/{name}" for name in ("chat.html", "chat.tsx", "useSession.tsx")),
    }


def test_plain_pack_of_a_checkout_holds_what_programs_import(built_client: Path, tmp_path: Path) -> None:
    tree = tmp_path / "clients/ts"
    shutil.copytree(built_client, tree, ignore=shutil.ignore_patterns("node_modules", "dist", "schema.ts"))
    shutil.copytree(built_client.parent.parent / "docs", tmp_path / "docs")
    (tree / "node_modules").symlink_to(SOURCE / "node_modules")
    npm(tree, "pack", "--silent")
    (archive,) = tree.glob("*.tgz")
    package = tree / "program/node_modules/@lanebus/client"
    package.mkdir(parents=True)
    subprocess.run(["tar", "--strip-components=1", "-xzf", archive, "-C", package], check=True)
    program = tree / "program/main.ts"
    program.write_text(
        'import { type Lanebus, connect } from "@lanebus/client";\nimport { upload } from "@lanebus/client/upload";\n'
        "const functions: [typeof connect, typeof upload] = [connect, upload];\n"
        "export const close = (bus: Lanebus): unknown => [bus, functions];\n"
    )
    options = ("--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "node")
    npm(tree, "exec", "--", "tsc", *options, str(program))
    script = tree / "program/main.mjs"
    script.write_text('import { connect } from "@lanebus/client";\nconsole.log(typeof connect);\n')
    run = subprocess.run([NODE, script], check=True, capture_output=True, text=True)
    assert run.stdout == "function\n"


def test_package_needs_nothing_and_has_the_version_and_the_license_of_the_project() -> None:
    package, lock = (json.loads((SOURCE / name).read_text()) for name in ("package.json", "package-lock.json"))
    assert not package.keys() & {"dependencies", "peerDependencies", "optionalDependencies"}
    assert all(re.fullmatch(r"[\d.]+", version) for version in package["devDependencies"].values())
    assert [word for word in ("http://", "resolved") if word in json.dumps(lock)] == []
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (package["version"], package["license"], lock["version"]) == (version, "MIT", version)
    assert (SOURCE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert len((SOURCE / "examples/useSession.tsx").read_text().splitlines()) <= 40


def test_make_builds_and_packs_the_client() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "client"], cwd=ROOT, env=node_path(), capture_output=True, text=True, check=True
    )
    assert "npm pack" in done.stdout
    assert "npm pack" in done.stdout
