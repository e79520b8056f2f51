"""Tests of your agents: a model that follows a script. An installed lanebus also gives pytest two fixtures:
`lanebus_bus`, a bus on an embedded server that is thrown away, and `lanebus_model`, a model without answers yet.
"""

from lanebus.handlers.agent.models.offline import ScriptedModel, ScriptEnded

__all__ = ("ScriptEnded", "ScriptedModel")
