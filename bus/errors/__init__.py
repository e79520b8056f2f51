"""Every error that the bus raises on purpose. Each branch has its own module and needs a different reaction.

    BusError
    ├─ MessageError    the data is wrong: correct it
    ├─ SetupError      a setting is wrong: change it
    ├─ StreamError     the log refused the operation: nothing was written
    ├─ Closed          the caller has closed the bus
    └─ Unavailable     the server cannot be reached or cannot answer: try again

The text of an error is built from its typed fields. Catch a class and read the fields; never parse the text.
"""

from lanebus.bus.errors.arguments import *
from lanebus.bus.errors.base import *
from lanebus.bus.errors.bounds import *
from lanebus.bus.errors.closed import *
from lanebus.bus.errors.message import *
from lanebus.bus.errors.setup import *
from lanebus.bus.errors.stream import *
from lanebus.bus.errors.unavailable import *
