"""A section of several kinds: those of the package, and those of plug-ins, each with settings of its own."""

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, Union

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidatorFunctionWrapHandler, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from r3l import plugins
from r3l.config.section import Member
from r3l.errors import ConfigError


@lru_cache(maxsize=64)
def for_any_kind(settings: type[Member]) -> type[Member]:
    """Derive a class of settings for another kind than its own: of a plug-in that takes over another's settings."""
    anything: Any = (str, "")
    return create_model(settings.__name__, __base__=settings, __module__=settings.__module__, kind=anything)


@dataclass(frozen=True)
class Kinds:
    """Settings by their `kind`. One that is not `own` is a plug-in's: its own class validates them.

    A form shows the package's kinds and those of installed packages. Validation imports no plug-in but the one that is
    named, and a dotted path only where the user allowed it (`r3l.plugins`).
    """

    section: str
    base: type[Member]
    own: tuple[type[Member], ...]

    def names(self) -> list[str]:
        """List the package's own kinds."""
        return [member.model_fields["kind"].default for member in self.own]

    def settings_class(self, kind: str) -> type[Member] | None:
        """Find the class of a kind's settings; None of a kind that is unknown, or may not be imported."""
        for member in self.own:
            if member.model_fields["kind"].default == kind:
                return member
        outside = plugins.allowed_paths() if plugins.is_dotted(kind) else plugins.installed(self.section)
        return self.of_plugin(kind) if kind in outside else None

    def shared(self, kind: str, other: str) -> set[str]:
        """Name the settings that a kind takes over from another: all that it knows, where one of the two classes is
        derived from the other; else none."""
        ours, theirs = self.settings_class(kind), self.settings_class(other)
        if ours is None or theirs is None or self.base in {ours, theirs}:
            return set()
        if not (issubclass(ours, theirs) or issubclass(theirs, ours)):
            return set()
        return {*ours.model_fields} & {*theirs.model_fields}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        union: Any = Annotated[Union[self.own], Field(discriminator="kind")]  # noqa: UP007
        return core_schema.no_info_wrap_validator_function(
            self._validated,
            handler.generate_schema(union),
            serialization=core_schema.wrap_serializer_function_ser_schema(
                lambda value, serialized: serialized(value), schema=core_schema.any_schema()
            ),
        )

    def _validated(self, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if isinstance(value, self.base):
            return value
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind in self.names():
            return handler(value)
        if not plugins.is_dotted(kind) and kind not in plugins.installed(self.section):
            return handler(value)  # which says what kinds there are
        return self.of_plugin(kind).model_validate(value)

    def of_plugin(self, kind: str) -> type[Member]:
        """Load the class of a plug-in's settings. Raise `ConfigError` as `plugins.settings_class` does."""
        settings: type[Member] = plugins.settings_class(self.section, kind, self.base)
        return settings if settings.model_fields["kind"].annotation is str else for_any_kind(settings)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """List the kinds as `anyOf`: Prefect's forms know no `oneOf` with a discriminator."""
        form_schema = handler(schema)
        form_schema.pop("discriminator", None)
        form_schema["anyOf"] = [
            *form_schema.pop("oneOf"),
            *(handler(form.__pydantic_core_schema__) for form in self._forms()),
        ]
        return form_schema

    def _forms(self) -> list[type[Member]]:
        """Derive the settings of installed plug-ins, each with its kind fixed. One that can't be imported is left out
        with a warning: whoever asks for it is told why."""
        forms = []
        for kind in sorted(plugins.installed(self.section)):
            try:
                plugins.refuse_taken(self.section, kind, self.names())
                settings = self.of_plugin(kind)
            except ConfigError as error:
                logging.getLogger(__name__).warning("the form leaves out a plug-in: %s", error)
                continue
            kind_field: Any = (Literal[kind], kind)
            forms.append(
                create_model(settings.__name__, __base__=settings, __module__=settings.__module__, kind=kind_field)
            )
        return forms
