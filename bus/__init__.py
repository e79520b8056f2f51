"""An event-sourced message bus for agent loops, on Redis streams."""
