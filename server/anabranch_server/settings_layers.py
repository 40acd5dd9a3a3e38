"""Where settings come from: each source becomes one `Layer` of checked names and unchecked values.

A layer also knows how its author spells a setting, so that a message names `--http-port`,
`ANABRANCH_HTTP_PORT` or the file's key, whichever was used.
"""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from anabranch_model_store.yaml_text import MAX_BYTES, parse_yaml
from anabranch_wire.errors import InvalidInput

__all__ = ["Layer", "environment_layer", "file_layer", "flags_layer"]

_PREFIX: Final = "ANABRANCH_"

_OTHER_NAMES: Final = frozenset(
    {
        "ANABRANCH_CONFIG",
        "ANABRANCH_ADMIN_URL",
        "ANABRANCH_ADMIN_TOKEN_FILE",
        "ANABRANCH_URL",
        "ANABRANCH_TOKEN_FILE",
        "ANABRANCH_CORPUS",
        "ANABRANCH_REQUIRE",
    }
)
"""Names in the environment that belong to the client, the command line or the tests."""

_ALIASES: Final[Mapping[str, str]] = {"poll_s": "watch.poll_s"}
"""Second names of settings; every layer is rewritten to the first."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The settings that one source gave.

    Attributes:
        kind: what kind of source.
        origin: the source's own name: the file's path, else empty.
        values: dotted setting name -> value as the source has it.
        spellings: dotted setting name -> how the source spells it.
    """

    kind: Literal["flag", "environment", "file"]
    origin: str
    values: Mapping[str, object]
    spellings: Mapping[str, str]

    def nested(self) -> dict[str, object]:
        """Return the values as a mapping of groups."""
        nested: dict[str, object] = {}
        groups: dict[str, dict[str, object]] = {}
        for name, value in self.values.items():
            group, dot, key = name.partition(".")
            if dot:
                groups.setdefault(group, {})[key] = value
            else:
                nested[name] = value
        return nested | groups


def flags_layer(flags: Mapping[str, object]) -> Layer:
    """Return the flags that were given; None stands for a flag that was not.

    Args:
        flags: setting name -> value, as the command line parsed it.
    """
    found = {
        name: (f"--{name.replace('_', '-')}", value)
        for name, value in flags.items()
        if value is not None
    }
    return _layer("flag", "", found)


def environment_layer(environ: Mapping[str, str], known: Collection[str]) -> Layer:
    """Return the settings among the environment's `ANABRANCH_*`; empty values count as not set.

    Args:
        environ: the environment.
        known: dotted names of all settings.

    Raises:
        InvalidInput: an `ANABRANCH_*` name is no setting.
    """
    variables = {_variable(name): name for name in (*known, *_ALIASES)}
    found: dict[str, tuple[str, object]] = {}
    for variable, value in environ.items():
        if not variable.startswith(_PREFIX) or variable in _OTHER_NAMES:
            continue
        name = variables.get(variable)
        if name is None:
            raise InvalidInput(f"{variable}: no such setting{_meant(variable, variables)}")
        if value:
            found[name] = (variable, value)
    return _layer("environment", "", found)


def file_layer(path: Path, known: Collection[str]) -> Layer:
    """Return the settings of a file.

    Args:
        path: a YAML file of setting names, groups as nested mappings.
        known: dotted names of all settings.

    Raises:
        TooLarge: it is larger than any settings file could be.
        InvalidInput: it cannot be read, is no plain YAML, or a key is no setting.
    """
    names = {*known, *_ALIASES}
    groups = {name.partition(".")[0] for name in known if "." in name} | {"telemetry"}
    found: dict[str, tuple[str, object]] = {}
    for key, value in _read_mapping(path).items():
        if key in groups:
            for name, inner in _group_items(path, key, value):
                if name not in names:
                    raise InvalidInput(f"{path}: {name}: no such setting{_meant(name, names)}")
                found[name] = (f"{path}: {name}", inner)
        elif key in names and "." not in key:
            found[key] = (f"{path}: {key}", value)
        else:
            raise InvalidInput(f"{path}: {key}: no such setting{_meant(key, names | groups)}")
    return _layer("file", str(path), found)


def _read_mapping(path: Path) -> Mapping[str, object]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    document, _ = parse_yaml(text, str(path))
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InvalidInput(f"{path}: expected a mapping of setting names to values")
    return document


def _group_items(path: Path, group: str, value: object) -> list[tuple[str, object]]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{path}: {group}: expected a mapping, got {str(value)[:80]!r}")
    return [(f"{group}.{key}", inner) for key, inner in value.items()]


def _layer(
    kind: Literal["flag", "environment", "file"],
    origin: str,
    found: Mapping[str, tuple[str, object]],
) -> Layer:
    """Build a layer from name -> (spelling, value), with second names replaced by first ones."""
    values: dict[str, object] = {}
    spellings: dict[str, str] = {}
    for given, (spelling, value) in found.items():
        name = _ALIASES.get(given, given)
        if name in values:
            raise InvalidInput(f"{spelling} and {spellings[name]} are the same setting: give one")
        values[name], spellings[name] = value, spelling
    return Layer(kind, origin, values, spellings)


def _variable(name: str) -> str:
    return _PREFIX + name.replace(".", "__").upper()


def _meant(found: str, known: Collection[str]) -> str:
    """Return `, did you mean X?` where something known is close, else nothing."""
    close = difflib.get_close_matches(found, known, n=1, cutoff=0.7)
    if not close:
        # A key of a group without its group: `max_rows` for `limits.max_rows`.
        leaf = found.lower().removeprefix(_PREFIX.lower())
        ends = (f".{leaf}", f"__{leaf.upper()}")
        close = sorted(name for name in known if name.endswith(ends))
    return f", did you mean {close[0]}?" if close else ""
