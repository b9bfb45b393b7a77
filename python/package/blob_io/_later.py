"""The names of `_hints`, which is imported when the first of them is asked for."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    from . import _hints

    return getattr(_hints, name)
