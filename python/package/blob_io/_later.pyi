"""The names of `_hints`."""

from ._hints import *
