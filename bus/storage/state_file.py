"""A small JSON file that outlives its process, in a folder of the user's state."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import cast

from lanebus.bus.errors import DirectoryNotCreated
from lanebus.bus.storage.folder import write_and_rename
from lanebus.bus.storage.ownership import open_owned
from lanebus.bus.threads import run_in_thread

__all__ = ("StateFile",)

_WHAT, _REMEDY = "state directory", "choose another one with --state-dir or LANEBUS_STATE_DIR"


class StateFile:
    """A JSON object in a file. Processes may share the file: each write replaces it as a whole.

    The file counts only if no other user could have written it, because it decides whether a log is trusted. Calls run
    in threads; a cancelled call waits for its thread to end.
    """

    def __init__(self, path: Path, *, most_files: int = 200, limit_bytes: int = 4_096) -> None:
        """
        Args:
            path: the file. Its folder is created by the first write.
            most_files: maximum number of state files in the folder. The files that were not written for longest are
                removed: they are of servers that were given up, such as those of temporary directories.
            limit_bytes: a longer file counts as empty.
        """
        self._path, self._most_files, self._limit_bytes = path.absolute(), most_files, limit_bytes

    async def read(self) -> dict[str, object]:
        """Return the stored object; empty if there is none, or if the file is damaged.

        Raises:
            DirectoryNotOwned: another user could have written the file.
            DirectoryNotCreated: the file cannot be read.
        """
        return await run_in_thread(self._read)

    async def write(self, values: dict[str, object]) -> None:
        """Replace the object. After a power cut, the file may hold an earlier one.

        Raises:
            DirectoryNotOwned: another user could write to the folder.
            DirectoryNotCreated: the folder cannot be created, or the file cannot be written.
        """
        await run_in_thread(lambda: self._write(json.dumps(values).encode()))

    def _read(self) -> dict[str, object]:
        try:
            with os.fdopen(open_owned(self._path, _WHAT, _REMEDY), "rb") as file:
                text = file.read(self._limit_bytes + 1)
            found = cast("object", json.loads(text)) if len(text) <= self._limit_bytes else None
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        except OSError as error:
            raise self._fault(error) from None
        return cast("dict[str, object]", found) if isinstance(found, dict) else {}

    def _write(self, text: bytes) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = open_owned(self._path.parent, _WHAT, _REMEDY, is_folder=True)
            try:
                is_new = not self._path.exists()
                write_and_rename(folder, self._path.name, text, is_durable=False)
                if is_new:
                    self._remove_oldest()
            finally:
                os.close(folder)
        except OSError as error:
            raise self._fault(error) from None

    def _remove_oldest(self) -> None:
        found = sorted(self._path.parent.glob(f"*{self._path.suffix}"), key=lambda each: each.lstat().st_mtime)
        for path in found[: -self._most_files]:
            with suppress(FileNotFoundError):  # another process removed it
                path.unlink()

    def _fault(self, error: OSError) -> DirectoryNotCreated:
        return DirectoryNotCreated(_WHAT, self._path.parent, error.strerror or type(error).__name__, _REMEDY)
