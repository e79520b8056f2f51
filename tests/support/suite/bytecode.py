"""Keep compiled modules, even if PYTHONDONTWRITEBYTECODE is set.

Otherwise every test process compiles and rewrites all 360 test modules, which takes 8 CPU seconds. Each of the several
hundred processes that the tests start would compile `bus` and `handlers` again.
"""

import os
import sys

__all__ = ()

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
