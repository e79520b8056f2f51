"""Compiled modules are kept, whatever PYTHONDONTWRITEBYTECODE says.

Without them every test process compiles and rewrites all 360 test modules, which takes 8 CPU seconds, and each of the
several hundred processes that the tests start compiles `bus` and `handlers` anew.
"""

import os
import sys

__all__ = ()

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
