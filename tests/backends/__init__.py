"""The frameworks that lanebus stores for. Their own tests, unmodified, are the referees: `make backends`."""
