"""What `import bus` offers."""

import bus


def test_every_public_name_is_there_and_none_twice() -> None:
    assert [name for name in bus.__all__ if not hasattr(bus, name)] == []
    assert len(set(bus.__all__)) == len(bus.__all__)


def test_every_public_error_has_one_root_and_is_told_apart_by_who_can_act() -> None:
    errors = [
        value for name in bus.__all__ if isinstance(value := getattr(bus, name), type) and issubclass(value, Exception)
    ]
    branches = (bus.MessageError, bus.SetupError, bus.StreamError, bus.Closed, bus.Unavailable)
    for error in errors:
        if error not in {bus.BusError, bus.DurabilityWarning}:
            assert len([branch for branch in branches if issubclass(error, branch)]) == 1, error
