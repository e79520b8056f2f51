"""The programs that read and write the bus: folds, agents, protocols, frameworks, the page and the command line."""

if __name__ == "handlers":  # the folder of a checkout, imported by its own name
    from lanebus.checkout import alias

    alias("handlers")
