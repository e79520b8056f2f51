"""Every error that the bus raises on purpose. One root, then a branch, and a module, for each who can act.

    BusError
    ├─ MessageError    the data is wrong
    ├─ SetupError      the settings are wrong; change them
    ├─ StreamError     the stream said no
    ├─ Closed          you closed it
    └─ Unavailable     the world; try again

Fields are typed and the text is built here: catch a class and read its fields, never parse the text.
"""

from lanebus.bus.errors.base import *
from lanebus.bus.errors.closed import *
from lanebus.bus.errors.message import *
from lanebus.bus.errors.setup import *
from lanebus.bus.errors.stream import *
from lanebus.bus.errors.unavailable import *
