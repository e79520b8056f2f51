"""Record the golden logs anew: the views and chats, and with `--log` also the logs of the present version.

    python -m tests.golden.record [--log]

Look at the difference before you commit it: it is what users will find in what they have stored.
"""

import argparse

from tests.support.golden import agui, chats, logs, sessions

__all__ = ()

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record", description=__doc__)
    parser.add_argument("--log", action="store_true", help="write the logs of the present version too")
    with_logs = parser.parse_args().log
    logs.record(with_logs=with_logs)
    sessions.record(with_logs=with_logs)
    agui.record()
    chats.record()
