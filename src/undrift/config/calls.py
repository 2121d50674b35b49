"""A call of a user's own class or function, which is made later and is named by its `repr`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from undrift.config.errors import UndriftError
from undrift.config.fields import Config
from undrift.config.own import reference


@dataclass(frozen=True)
class OwnCall(Config):
    """A user's own class or function, and the arguments that the user gave.

    offers  parameters that are filled in when the call is made, if it has them
    """

    make: Callable[..., Any]
    args: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    offers: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def adapt(cls, own: Callable[..., Any]) -> Callable[..., Any]:
        """What makes the call of a given class or function; `Config`s are made at once."""
        if isinstance(own, type) and issubclass(own, Config):
            return own

        @functools.wraps(own)
        def make(*args: Any, **options: Any) -> OwnCall:
            return cls(own, args, tuple(options.items()))

        return make

    def __post_init__(self) -> None:
        """Refuse wrong parameters by a TypeError, as the call itself would."""
        if known := self._signature():
            bound = known.bind_partial(*self.args, **dict(self.options)).arguments
            for name, one in known.parameters.items():
                required = one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
                if required and name not in bound and name not in self._offered(known):
                    raise TypeError(f"{name} must be given")

    def _offered(self, known: inspect.Signature) -> Sequence[str]:
        """Names of parameters that the user need not give."""
        return self.offers

    def call(self, **offered: Any) -> Any:
        """Make the call, with what is offered where it takes it."""
        known = self._signature()
        given = known.bind_partial(*self.args, **dict(self.options)).arguments if known else {}
        takes = {} if known is None else known.parameters
        wanted = {k: v for k, v in offered.items() if k in takes and k not in given}
        try:
            return self.make(*self.args, **dict(self.options), **wanted)
        except UndriftError:
            raise
        except Exception as error:
            raise UndriftError(f"{self!r}: {type(error).__name__}: {error}") from error

    def _signature(self) -> inspect.Signature | None:
        try:
            return inspect.signature(self.make)
        except ValueError:  # of some functions written in C
            return None

    def __repr__(self) -> str:
        name = reference(self.make) or self.make.__name__
        given = [*map(repr, self.args), *(f"{key}={value!r}" for key, value in self.options)]
        return f"{name}({', '.join(given)})"
