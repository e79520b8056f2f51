"""Let the clients of tests trust only one certificate authority, whose key was deleted.

No test uses TLS. Yet each HTTP client loads the system's 140 authorities, some SDKs four times for one client. That
takes up to a tenth of a second, for several hundred clients.
"""

import os
from pathlib import Path

__all__ = ()

os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))  # child processes inherit it
