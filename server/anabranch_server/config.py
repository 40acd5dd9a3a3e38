"""What each part of the server is told: frozen values with their defaults, in one place.

`anabranch_server.settings` fills them from flags, environment and file; every component receives
its own part and never the whole. Times in seconds, sizes in bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from anabranch_server.limits import Limits

__all__ = [
    "Addresses",
    "AuthConfig",
    "ExplainLogConfig",
    "FeatureLogConfig",
    "Folders",
    "GpuConfig",
    "GrpcConfig",
    "HttpConfig",
    "LogConfig",
    "RepositoryConfig",
    "RuntimeConfig",
    "ServeConfig",
    "StoreConfig",
    "SwitchConfig",
    "TelemetryConfig",
    "TlsConfig",
    "WatchConfig",
]

LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]


def _require_positive(group: str, config: object, *names: str) -> None:
    for name in names:
        if not getattr(config, name) > 0:
            raise ValueError(f"{group}.{name}: expected more than 0")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """How embedding rows are kept.

    Attributes:
        base: where base rows are read from: `map` the file, `copy` of it in shared memory; `auto`
            copies where the file could fail later, or where half of what is left is enough.
        residency: of base rows: `lazy` comes when it is read, `populated` before, `locked` stays.
        reserve: share of a table's rows kept free for inserts, where model.yaml names none.
    """

    base: Literal["map", "copy", "auto"] = "auto"
    residency: Literal["lazy", "populated", "locked"] = "populated"
    reserve: float = 0.25

    def __post_init__(self) -> None:
        if self.reserve < 0:
            raise ValueError("store.reserve: expected at least 0")


@dataclass(frozen=True, slots=True)
class SwitchConfig:
    """How long a switch of versions may take.

    Attributes:
        prepare_timeout_s: for every worker to prepare.
        stall_s: age of a worker's lease at which that worker is replaced.
        gap_grace_s: to wait for a missing delta before it is an error.
        orphan_s: age at which what a dead process left behind is cleared away.
    """

    prepare_timeout_s: float = 60.0
    stall_s: float = 30.0
    gap_grace_s: float = 60.0
    orphan_s: float = 300.0

    def __post_init__(self) -> None:
        _require_positive("switch", self, *(item.name for item in fields(self)))


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """The interpreter.

    Attributes:
        gil_switch_interval_s: `sys.setswitchinterval`; None leaves the interpreter's own.
    """

    gil_switch_interval_s: float | None = None

    def __post_init__(self) -> None:
        if self.gil_switch_interval_s is not None:
            _require_positive("runtime", self, "gil_switch_interval_s")


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The HTTP door.

    Attributes:
        max_connection_age_s: age, give or take a tenth, at which a connection is closed after an
            answer, so that its client spreads anew; 0 never.
    """

    max_connection_age_s: float = 3600.0

    def __post_init__(self) -> None:
        if self.max_connection_age_s < 0:
            raise ValueError("http.max_connection_age_s: expected at least 0")


@dataclass(frozen=True, slots=True)
class GrpcConfig:
    """The gRPC door.

    Attributes:
        max_connection_age_s: age at which a connection is asked to reconnect.
    """

    max_connection_age_s: float = 300.0

    def __post_init__(self) -> None:
        _require_positive("grpc", self, "max_connection_age_s")


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """GPU workers.

    Attributes:
        standby_worker: whether a second worker stands by, ready to take over.
    """

    standby_worker: bool = False


@dataclass(frozen=True, slots=True)
class FeatureLogConfig:
    """A sample of ranked requests as files of training data.

    Attributes:
        sample: share of ranking requests to write, 0 to 1.
        dir: folder to write to; needed where `sample` is more than 0.
    """

    sample: float = 0.0
    dir: Path | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.sample <= 1:
            raise ValueError("feature_log.sample: expected 0 to 1")
        if self.sample and self.dir is None:
            raise ValueError("feature_log.sample: needs feature_log.dir, a folder to write to")


@dataclass(frozen=True, slots=True)
class ExplainLogConfig:
    """Explanations of rankings in the log.

    Attributes:
        sample: share of ranking requests whose explanation is logged, 0 to 1.
    """

    sample: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.sample <= 1:
            raise ValueError("explain_log.sample: expected 0 to 1")


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """How new versions are noticed.

    Attributes:
        poll_s: time between looks at the repository.
        inotify: whether changes of local folders are seen at once.
    """

    poll_s: float = 1.0
    inotify: bool = True

    def __post_init__(self) -> None:
        _require_positive("watch", self, "poll_s")


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Who may call.

    Attributes:
        token_file: `name:token` lines for the data ports.
        admin_token_file: the same for the admin ports.
    """

    token_file: Path | None = None
    admin_token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Encryption of the data ports.

    Attributes:
        cert_file: certificate chain, PEM.
        key_file: its private key, PEM.
        client_ca_file: authorities whose clients are let in, PEM.
    """

    cert_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """Tracing; it is configured by the standard `OTEL_*` environment and has no keys of its own."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where each door listens. A port of 0 is a free one, chosen once at start.

    Attributes:
        host: interface of HTTP, gRPC and metrics.
        http_port: Open Inference Protocol over HTTP.
        grpc_port: the same over gRPC.
        metrics_port: `/metrics` and the probes.
        admin_host: interface of the admin doors.
        admin_port: admin API over HTTP.
        admin_grpc_port: repository calls over gRPC.
    """

    host: str
    http_port: int
    grpc_port: int
    metrics_port: int
    admin_host: str
    admin_port: int
    admin_grpc_port: int


@dataclass(frozen=True, slots=True)
class Folders:
    """The server's own folders; each is created with mode 0700.

    Attributes:
        cache: downloads, segments, optimised graphs; may be deleted while stopped.
        state: pins and labels set at run time.
        run: sockets and the ready file; `{http_port}` in it stands for that port.
    """

    cache: Path
    state: Path
    run: Path


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What is logged, and how.

    Attributes:
        format: `json` for machines, `text` for people.
        level: least level that is written.
        access: whether every request gets a line.
    """

    format: LogFormat = "json"
    level: LogLevel = "info"
    access: bool = False


@dataclass(frozen=True, slots=True)
class RepositoryConfig:
    """Which models are served.

    Attributes:
        path: the repository, a local folder; of one at a URL, where its skeleton is kept.
        models: names to serve; None for all.
        settle_s: how long a version folder without manifest must have been still.
        url: where it is, if that is another machine.
        storage_options: what reaches it there, credentials among them; never shown.
        cache_max_bytes: of fetched files that nothing uses any more.
    """

    path: Path
    models: tuple[str, ...] | None
    settle_s: float
    url: str | None = None
    storage_options: Mapping[str, object] = field(default_factory=dict, repr=False)
    cache_max_bytes: int = 64 << 30


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Everything `anabranch serve` was told, by component.

    Attributes:
        repository: which models.
        addresses: where to listen.
        limits: bounds on what callers may send.
        folders: the server's own files.
        logs: what is logged.
        runtime: the interpreter.
        http: the HTTP door.
        grpc: the gRPC door.
        watch: how new versions are noticed.
        switch: how long a switch of versions may take.
        store: how embedding rows are kept.
        explain_log: explanations of rankings in the log.
        feature_log: a sample of ranked requests as files.
        workers: number of worker processes, at least 1.
        drain_s: how long to keep answering after a stop signal.
        allow_empty: whether an empty repository is ready.
        ready_file: a second place for ready.json.
        notes: sentences the operator should read once, as a changed setting without effect.
        shown: the settings this came from as plain data, secrets masked.
    """

    repository: RepositoryConfig
    addresses: Addresses
    limits: Limits
    folders: Folders
    logs: LogConfig
    runtime: RuntimeConfig
    http: HttpConfig
    grpc: GrpcConfig
    watch: WatchConfig
    switch: SwitchConfig
    store: StoreConfig
    explain_log: ExplainLogConfig
    feature_log: FeatureLogConfig
    workers: int
    drain_s: float
    allow_empty: bool
    ready_file: Path | None
    notes: tuple[str, ...] = field(default=())
    shown: Mapping[str, object] = field(default_factory=dict)
