"""The programs that read and write the bus: context, projections, providers, codecs, agents, UI, command line."""

if __name__ == "handlers":  # the folder of a checkout, imported by its own name
    from lanebus.checkout import alias

    alias("handlers")
