"""Flags, environment and file become one checked value, and that becomes every part's config.

Precedence: flag, then `ANABRANCH_*`, then file, then default. A name that is no setting is an error
wherever it stands, with the nearest name as a suggestion. This is the only module that knows
pydantic-settings.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from anabranch_model_store.folder_levels import check_repository_level
from anabranch_model_store.sources.urls import check_url, url_digest
from anabranch_server.config import (
    Addresses,
    AuthConfig,
    ExplainLogConfig,
    FeatureLogConfig,
    Folders,
    GpuConfig,
    GrpcConfig,
    HttpConfig,
    LogConfig,
    LogFormat,
    LogLevel,
    RepositoryConfig,
    RuntimeConfig,
    ServeConfig,
    StoreConfig,
    SwitchConfig,
    TelemetryConfig,
    TlsConfig,
    WatchConfig,
)
from anabranch_server.cores import workers_for
from anabranch_server.folders import (
    default_cache_dir,
    default_run_dir,
    default_state_dir,
    state_dir_for,
)
from anabranch_server.limits import Limits
from anabranch_server.settings_layers import Layer, environment_layer, file_layer, flags_layer
from anabranch_server.support import check_supported, notes_on
from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.names import check_model_name
from anabranch_wire.places import is_url

__all__ = ["SETTINGS", "ReadSettings", "Settings", "read_settings", "serve_config"]

_SECRET: Final = frozenset(
    {"auth.token_file", "auth.admin_token_file", "tls.key_file", "storage_options"}
)
"""Settings whose values are never shown."""


def _model_names(value: object) -> object:
    """Read `a,b` as two names."""
    if isinstance(value, str):
        return [name.strip() for name in value.split(",")]
    return value


def _json_mapping(value: object) -> object:
    """Read the JSON of an environment variable."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("expected a JSON object") from None
    return value


def _checked_names(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    for name in names or ():
        try:
            check_model_name(name)
        except InvalidInput as error:
            raise ValueError(error.message) from None  # what pydantic collects
    return names


Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(ge=0)]


class Settings(BaseSettings):
    """Every setting with its default; groups are the config values of their parts."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    host: str = "0.0.0.0"
    http_port: Port = 8000
    grpc_port: Port = 8001
    grpc_engine: Literal["grpcio", "native"] = "grpcio"
    metrics_port: Port = 8002
    admin_host: str = "127.0.0.1"
    admin_port: Port = 8003
    admin_grpc_port: Port = 8004
    workers: Annotated[int, Field(ge=0, le=1024)] = 0
    models: Annotated[
        tuple[str, ...] | None, BeforeValidator(_model_names), AfterValidator(_checked_names)
    ] = None
    settle_s: Seconds = 5.0
    drain_s: Seconds = 15.0
    cache_dir: Path | None = None
    cache_max_bytes: Annotated[int, Field(gt=0)] = 64 << 30
    storage_options: Annotated[dict[str, object], BeforeValidator(_json_mapping)] = {}
    state_dir: Path | None = None
    run_dir: Path | None = None
    ready_file: Path | None = None
    log_format: LogFormat = "json"
    log_level: LogLevel = "info"
    access_log: bool = False
    allow_empty: bool = False
    limits: Limits = Limits()
    tls: TlsConfig = TlsConfig()
    auth: AuthConfig = AuthConfig()
    store: StoreConfig = StoreConfig()
    switch: SwitchConfig = SwitchConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    http: HttpConfig = HttpConfig()
    grpc: GrpcConfig = GrpcConfig()
    gpu: GpuConfig = GpuConfig()
    feature_log: FeatureLogConfig = FeatureLogConfig()
    explain_log: ExplainLogConfig = ExplainLogConfig()
    watch: WatchConfig = WatchConfig()
    telemetry: TelemetryConfig = TelemetryConfig()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing but what is passed in: the layers below are the only sources."""
        return (init_settings,)

    def values(self) -> dict[str, object]:
        """Return dotted setting name -> value, in the order of the fields."""
        found: dict[str, object] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if is_dataclass(value):
                found |= {
                    f"{name}.{item.name}": getattr(value, item.name) for item in fields(value)
                }
            else:
                found[name] = value
        return found


SETTINGS: Final[Mapping[str, object]] = MappingProxyType(Settings().values())
"""Dotted name of every setting -> its default."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Settings as they were read, with who set what.

    Attributes:
        settings: the effective values.
        spellings: dotted name of each setting that some source gave -> how the source that won
            spells it (`--http-port`, `ANABRANCH_HTTP_PORT`, `anabranch.yaml: http_port`).
    """

    settings: Settings
    spellings: Mapping[str, str]

    def changed(self) -> dict[str, str]:
        """Return `spellings` of the settings that differ from their defaults."""
        values = self.settings.values()
        return {name: by for name, by in self.spellings.items() if values[name] != SETTINGS[name]}

    def shown(self) -> dict[str, object]:
        """Return the effective settings as plain data, groups as mappings, secrets as `***`."""
        document: dict[str, object] = {}
        for name, value in self.settings.values().items():
            shown = _plain("***" if name in _SECRET and value not in (None, {}) else value)
            group, dot, key = name.partition(".")
            if dot:
                inner = document.setdefault(group, {})
                assert isinstance(inner, dict)
                inner[key] = shown
            else:
                document[name] = shown
        return document

    def to_yaml(self) -> str:
        """Return `shown` as a settings file."""
        return yaml.safe_dump(self.shown(), sort_keys=False)


def read_settings(
    flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None
) -> ReadSettings:
    """Return the settings that flags, environment and file make together.

    Args:
        flags: setting name -> value of the command line; None where a flag was not given.
        environ: the environment.
        file: a settings file, or None.

    Raises:
        InvalidInput: a name is no setting, or a value is not one that the setting may have.
    """
    layers = [flags_layer(flags), environment_layer(environ, SETTINGS)]
    if file is not None:
        layers.append(file_layer(file, SETTINGS))
    for layer in layers:
        _refuse_bools_for_others(layer)
    folders = {
        "cache_dir": default_cache_dir(environ),
        "state_dir": default_state_dir(environ),
        "run_dir": default_run_dir(environ),
    }
    nested: list[dict[str, object]] = [*(layer.nested() for layer in layers), {**folders}]

    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *_: object, **__: object
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return tuple(InitSettingsSource(settings_cls, values) for values in nested)

    spellings: dict[str, str] = {}
    for layer in reversed(layers):
        spellings |= layer.spellings
    try:
        settings = Layered()
    except ValidationError as error:
        raise InvalidInput(_first_fault(error, spellings)) from None
    return ReadSettings(settings, spellings)


def serve_config(read: ReadSettings, repository: str, cores: int) -> ServeConfig:
    """Return what `serve` is to do.

    Args:
        read: the settings.
        repository: the model repository as it was named.
        cores: usable cores of the machine.

    Raises:
        InvalidInput: the repository is not a folder, or one inside a repository, or a URL that
            names none.
        Unsupported: a setting asks for what this release does not have, or a URL for a package
            that is not installed.
    """
    settings = read.settings
    check_supported(read.changed())
    cache = _given(settings.cache_dir)
    url = check_url(repository) if is_url(repository) else None
    path = _repository_path(repository) if url is None else _mirror(cache, url)
    return ServeConfig(
        repository=RepositoryConfig(
            path,
            settings.models,
            settings.settle_s,
            url,
            settings.storage_options,
            settings.cache_max_bytes,
        ),
        addresses=Addresses(
            settings.host,
            settings.http_port,
            settings.grpc_port,
            settings.metrics_port,
            settings.admin_host,
            settings.admin_port,
            settings.admin_grpc_port,
        ),
        limits=settings.limits,
        folders=Folders(
            cache,
            state_dir_for(_given(settings.state_dir), path if url is None else Path(url)),
            _given(settings.run_dir),
        ),
        logs=LogConfig(settings.log_format, settings.log_level, settings.access_log),
        runtime=settings.runtime,
        http=settings.http,
        grpc=settings.grpc,
        watch=settings.watch,
        switch=settings.switch,
        store=settings.store,
        explain_log=settings.explain_log,
        feature_log=_feature_log(settings.feature_log),
        workers=settings.workers or workers_for(cores),
        drain_s=settings.drain_s,
        allow_empty=settings.allow_empty,
        ready_file=settings.ready_file,
        notes=notes_on(read.changed()),
        shown=read.shown(),
    )


def _feature_log(config: FeatureLogConfig) -> FeatureLogConfig:
    """Return `config` with an absolute folder, if what it needs is there.

    Raises:
        Unsupported: pyarrow is not installed.
    """
    if config.sample and find_spec("pyarrow") is None:
        raise Unsupported(
            "feature_log.sample: needs pyarrow, which is not installed: "
            "pip install 'anabranch[parquet]'"
        )
    return config if config.dir is None else replace(config, dir=config.dir.absolute())


def _given(folder: Path | None) -> Path:
    assert folder is not None, "read_settings gives every folder a default"
    return folder


def _mirror(cache: Path, url: str) -> Path:
    """Return where the skeleton of a repository at a URL is kept."""
    return cache.absolute() / "mirror" / url_digest(url)


def _repository_path(text: str) -> Path:
    if not text:  # an unset variable in a script must not mean the current folder
        raise InvalidInput("the repository has an empty name: expected a folder, . for this one")
    path = Path(text)
    if not path.is_dir():
        raise InvalidInput(f"{text}: expected a folder with one folder per model")
    try:
        check_repository_level(path)
    except OSError as error:
        raise InvalidInput(f"{text}: cannot be read: {error.strerror}") from None
    return path.absolute()


def _refuse_bools_for_others(layer: Layer) -> None:
    """Keep YAML's true and false out of numbers, where pydantic would read 1 and 0."""
    for name, value in layer.values.items():
        if isinstance(value, bool) and not isinstance(SETTINGS[name], bool):
            shown = str(value).lower()
            raise InvalidInput(f"{layer.spellings[name]}: expected another value than {shown}")


def _first_fault(error: ValidationError, spellings: Mapping[str, str]) -> str:
    """Say in one line what is wrong with which setting, in the words of whoever set it."""
    fault = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(step) for step in fault["loc"][:2])
    reason = fault["msg"].removeprefix("Value error, ")
    named, colon, rest = reason.partition(": ")
    if colon and named in SETTINGS:  # a group checks its values itself and names the culprit
        return f"{spellings.get(named, named)}: {rest}"
    if place not in spellings:  # the fault is inside the value: models[1]
        place = place.partition(".")[0]
    found = "***" if place in _SECRET else repr(fault["input"])[:80]
    return f"{spellings.get(place, place)}: {reason[:1].lower()}{reason[1:]}, got {found}"


def _plain(value: object) -> object:
    """Return `value` in the types YAML has."""
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value
