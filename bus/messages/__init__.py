"""What can be said on the bus. Pure: nothing here knows of a stream."""
