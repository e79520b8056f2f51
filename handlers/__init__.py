"""What reads and writes the bus: context, projections, agents, UI, command line."""
