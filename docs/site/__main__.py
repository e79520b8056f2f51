"""`python -m docs.site [FOLDER]`: build the site into a folder, by default `build/site`."""

import sys
from pathlib import Path

from docs.site.build import OUTPUT, BuildFailed, build

__all__ = ()

if __name__ == "__main__":
    try:
        print(build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else OUTPUT))
    except BuildFailed as failed:
        sys.exit(str(failed))
