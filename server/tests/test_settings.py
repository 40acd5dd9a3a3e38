from pathlib import Path

import pytest

from anabranch_server.limits import Limits
from anabranch_server.settings import SETTINGS, ReadSettings, read_settings, serve_config
from anabranch_wire.errors import InvalidInput, TooLarge, Unsupported


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


def from_file(tmp_path: Path, text: str, **environ: str) -> ReadSettings:
    file = tmp_path / "anabranch.yaml"
    file.write_text(text)
    return read_settings({}, environ, file)


def test_defaults_are_those_of_the_contract(repository: Path) -> None:
    config = serve_config(read_settings({}, {}, None), str(repository), cores=4)

    assert config.addresses.host == "0.0.0.0"
    assert config.addresses.admin_host == "127.0.0.1"
    assert (config.addresses.http_port, config.addresses.grpc_port) == (8000, 8001)
    assert (config.addresses.metrics_port, config.addresses.admin_port) == (8002, 8003)
    assert config.addresses.admin_grpc_port == 8004
    assert (config.drain_s, config.repository.settle_s) == (15, 5)
    assert config.limits == Limits()
    assert config.repository.models is None
    assert config.workers == 1
    assert config.notes == ()


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "anabranch.yaml"
    file.write_text("http_port: 1\ngrpc_port: 1\nmetrics_port: 1\nlimits: {max_rows: 1}\n")
    environ = {"ANABRANCH_HTTP_PORT": "2", "ANABRANCH_GRPC_PORT": "2"}

    settings = read_settings({"http_port": 3}, environ, file).settings

    assert (settings.http_port, settings.grpc_port, settings.metrics_port) == (3, 2, 1)
    assert settings.admin_port == 8003


def test_keys_of_one_group_come_from_several_sources(tmp_path: Path) -> None:
    read = from_file(
        tmp_path,
        "limits: {max_rows: 7, max_dims: 3}\n",
        ANABRANCH_LIMITS__MAX_DIMS="4",
        ANABRANCH_LIMITS__HEADER_TIMEOUT_S="0.5",
    )

    limits = read.settings.limits
    assert (limits.max_rows, limits.max_dims, limits.header_timeout_s) == (7, 4, 0.5)
    assert limits.max_tensors == 1024


def test_models_are_a_list_or_comma_separated(tmp_path: Path) -> None:
    assert read_settings({"models": "a, b"}, {}, None).settings.models == ("a", "b")
    assert from_file(tmp_path, "models: [ctr, cvr]").settings.models == ("ctr", "cvr")


def test_both_names_of_the_poll_interval_work(tmp_path: Path) -> None:
    assert read_settings({"poll_s": 2.0}, {}, None).settings.watch.poll_s == 2
    assert from_file(tmp_path, "poll_s: 3").settings.watch.poll_s == 3
    assert from_file(tmp_path, "watch: {poll_s: 4}").settings.watch.poll_s == 4
    # Each source is rewritten before they meet: the environment still beats the file.
    mixed = from_file(tmp_path, "poll_s: 3", ANABRANCH_WATCH__POLL_S="5")
    assert mixed.settings.watch.poll_s == 5


def test_empty_environment_values_count_as_not_set() -> None:
    assert read_settings({}, {"ANABRANCH_HTTP_PORT": ""}, None).settings.http_port == 8000


def test_names_of_client_and_tests_are_no_settings_and_no_errors() -> None:
    environ = {
        "ANABRANCH_URL": "http://x",
        "ANABRANCH_CORPUS": "y",
        "ANABRANCH_CONFIG": "z",
        "HTTP_PORT": "1",
        "anabranch_http_port": "1",
    }
    assert read_settings({}, environ, None).settings.http_port == 8000


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"ANABRANCH_HTTP_PRT": "1"}, "ANABRANCH_HTTP_PRT: .* did you mean ANABRANCH_HTTP_PORT?"),
        ({"ANABRANCH_MAX_ROWS": "1"}, "did you mean ANABRANCH_LIMITS__MAX_ROWS?"),
        ({"ANABRANCH_LIMITS": "{}"}, "ANABRANCH_LIMITS: no such setting"),
        ({"ANABRANCH_HTTP_PORT": "x"}, "ANABRANCH_HTTP_PORT: .*integer.* got 'x'"),
        ({"ANABRANCH_HTTP_PORT": "65536"}, "ANABRANCH_HTTP_PORT: .*65535"),
        ({"ANABRANCH_DRAIN_S": "nan"}, "ANABRANCH_DRAIN_S: "),
        ({"ANABRANCH_DRAIN_S": "-1"}, "ANABRANCH_DRAIN_S: "),
        ({"ANABRANCH_GRPC__MAX_CONNECTION_AGE_S": "inf"}, "ANABRANCH_GRPC__.*: .*finite"),
        ({"ANABRANCH_LIMITS__MAX_ROWS": "0"}, "ANABRANCH_LIMITS__MAX_ROWS: expected more than 0"),
        ({"ANABRANCH_FEATURE_LOG__SAMPLE": "2"}, "ANABRANCH_FEATURE_LOG__SAMPLE: expected 0 to 1"),
        ({"ANABRANCH_MODELS": "a,..b"}, "ANABRANCH_MODELS: model name"),
        ({"ANABRANCH_LOG_LEVEL": "loud"}, "ANABRANCH_LOG_LEVEL: .*'debug', 'info'"),
        ({"ANABRANCH_POLL_S": "1", "ANABRANCH_WATCH__POLL_S": "1"}, "are the same setting"),
    ],
)
def test_bad_environment_is_refused_by_its_name(environ: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_settings({}, environ, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http_prt: 1", "http_prt: no such setting, did you mean http_port?"),
        ("max_rows: 1", "max_rows: no such setting, did you mean limits.max_rows?"),
        ("limits: {max_row: 1}", "limits.max_row: .* did you mean limits.max_rows?"),
        ("limits.max_rows: 1", "limits.max_rows: no such setting"),
        ("limits: 3", "limits: expected a mapping, got '3'"),
        ("telemetry: {x: 1}", "telemetry.x: no such setting"),
        ("http_port: true", "http_port: expected another value than true"),
        ("limits: {max_rows: true}", "limits.max_rows: expected another value"),
        (
            "runtime: {gil_switch_interval_s: false}",
            "runtime.gil_switch_interval_s: expected another value than false",
        ),
        ("drain_s: [1]", "drain_s: "),
        ("a: &x 1\nb: *x", "anabranch.yaml: line"),
        ("http_port: 1\nhttp_port: 2", "http_port.* twice"),
        ("!!python/name:os.system x", "anabranch.yaml"),
        ("[1]", "expected a mapping"),
        ("{", "anabranch.yaml"),
    ],
)
def test_bad_files_are_refused_by_their_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        from_file(tmp_path, text)


def test_missing_and_huge_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nothing\.yaml: No such file"):
        read_settings({}, {}, tmp_path / "nothing.yaml")
    with pytest.raises(TooLarge):
        from_file(tmp_path, "#" * 2_000_000)


def test_flags_are_named_as_they_are_written() -> None:
    with pytest.raises(InvalidInput, match=r"--http-port: .* got 70000"):
        read_settings({"http_port": 70000}, {}, None)


def test_every_setting_survives_printing_and_reading_again(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    flags = {"models": "a,b", "poll_s": 2.5, "ready_file": tmp_path / "r.json", "workers": 1}
    read = read_settings(flags, environ, None)

    file = tmp_path / "anabranch.yaml"
    file.write_text(read.to_yaml())

    assert read_settings({}, {}, file).settings.values() == read.settings.values()
    assert read.settings.cache_dir == tmp_path / ".cache/anabranch"


def test_secrets_are_not_printed(tmp_path: Path) -> None:
    read = from_file(tmp_path, "auth: {token_file: /secret/one}\ntls: {key_file: /secret/two}")

    printed = read.to_yaml()

    assert "secret" not in printed
    assert "token_file: '***'" in printed
    assert "admin_token_file: null" in printed


@pytest.mark.parametrize(
    ("flags", "environ", "message"),
    [
        ({"grpc_engine": "native"}, {}, "--grpc-engine: only the grpcio engine"),
        ({}, {"ANABRANCH_TLS__CERT_FILE": "/x"}, "ANABRANCH_TLS__CERT_FILE: TLS is not supported"),
        ({}, {"ANABRANCH_AUTH__TOKEN_FILE": "/x"}, "ANABRANCH_AUTH__TOKEN_FILE: tokens are not"),
        ({}, {"ANABRANCH_GPU__STANDBY_WORKER": "true"}, "GPU"),
    ],
)
def test_what_is_not_there_yet_is_refused_when_asked_for(
    repository: Path, flags: dict[str, object], environ: dict[str, str], message: str
) -> None:
    read = read_settings(flags, environ, None)
    with pytest.raises(Unsupported, match=message):
        serve_config(read, str(repository), cores=1)


def test_a_feature_log_has_a_folder_and_pyarrow(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = {"ANABRANCH_FEATURE_LOG__SAMPLE": "0.1"}
    with pytest.raises(
        InvalidInput, match=r"ANABRANCH_FEATURE_LOG__SAMPLE: needs feature_log\.dir"
    ):
        read_settings({}, sample, None)
    monkeypatch.chdir(tmp_path)
    read = read_settings({}, {**sample, "ANABRANCH_FEATURE_LOG__DIR": "features"}, None)

    config = serve_config(read, str(repository), cores=1).feature_log

    assert (config.sample, config.dir) == (0.1, tmp_path / "features")
    monkeypatch.setattr("anabranch_server.settings.find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="needs pyarrow, which is not installed"):
        serve_config(read, str(repository), cores=1)


def test_values_equal_to_the_default_are_never_refused(repository: Path) -> None:
    read = read_settings({"grpc_engine": "grpcio", "poll_s": 1.0}, {}, None)
    assert serve_config(read, str(repository), cores=1).notes == ()


def test_changed_settings_without_effect_are_named(repository: Path) -> None:
    read = read_settings({"poll_s": 7.0}, {"ANABRANCH_SWITCH__ORPHAN_S": "60"}, None)

    (note,) = serve_config(read, str(repository), cores=1).notes

    assert note.startswith("ANABRANCH_SWITCH__ORPHAN_S has no effect")


def test_workers_are_as_many_as_asked_for_or_one_per_eight_cores(repository: Path) -> None:
    computed = serve_config(read_settings({}, {}, None), str(repository), cores=17)
    asked = serve_config(read_settings({"workers": 2}, {}, None), str(repository), cores=17)

    assert (computed.workers, asked.workers) == (3, 2)
    assert computed.notes == asked.notes == ()


def test_connections_may_live_for_ever_but_not_less_than_no_time() -> None:
    environ = {"ANABRANCH_HTTP__MAX_CONNECTION_AGE_S": "0"}
    assert read_settings({}, environ, None).settings.http.max_connection_age_s == 0
    with pytest.raises(InvalidInput, match="AGE_S: expected at least 0"):
        read_settings({}, {"ANABRANCH_HTTP__MAX_CONNECTION_AGE_S": "-1"}, None)


def test_a_share_of_explanations_is_between_nothing_and_all(repository: Path) -> None:
    name = "ANABRANCH_EXPLAIN_LOG__SAMPLE"
    config = serve_config(read_settings({}, {name: "0.25"}, None), str(repository), cores=1)

    assert config.explain_log.sample == 0.25
    assert SETTINGS["explain_log.sample"] == 0.0
    for wrong in ("-0.1", "1.1"):
        with pytest.raises(InvalidInput, match="SAMPLE: expected 0 to 1"):
            read_settings({}, {name: wrong}, None)


def test_the_repository_must_be_a_folder(tmp_path: Path) -> None:
    read = read_settings({}, {}, None)
    with pytest.raises(InvalidInput, match="expected a folder"):
        serve_config(read, str(tmp_path / "missing"), cores=1)
    with pytest.raises(InvalidInput, match="empty name"):
        serve_config(read, "", cores=1)


def test_a_repository_at_a_url_has_its_skeleton_in_the_cache(tmp_path: Path) -> None:
    environ = {
        "ANABRANCH_CACHE_DIR": str(tmp_path / "cache"),
        "ANABRANCH_STATE_DIR": str(tmp_path / "state" / "{repository}"),
    }
    read = read_settings({}, environ, None)

    one = serve_config(read, "s3://bucket/models/", cores=1)
    same = serve_config(read, "s3://bucket/models", cores=1)
    other = serve_config(read, "s3://bucket2/models", cores=1)

    assert one.repository == same.repository
    assert one.repository.url == "s3://bucket/models"
    assert one.repository.path.parent == tmp_path / "cache" / "mirror"
    assert one.repository.path != other.repository.path
    assert one.folders.state.name.startswith("models-")
    assert one.folders.state != other.folders.state


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://key:secret@bucket/models", "holds credentials"),
        ("s3://bucket/models?secret=1", "nothing behind"),
        ("s3://", "expected a place"),
        ("s3:///models", "expected a place"),
        ("file:///models", "name the folder itself, as in /models"),
    ],
)
def test_a_url_names_a_place_and_no_credentials(url: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        serve_config(read_settings({}, {}, None), url, cores=1)
    assert "secret" not in caught.value.message


def test_a_url_that_nobody_reads_is_refused() -> None:
    with pytest.raises(Unsupported, match="gopher://: nobody here reads such URLs"):
        serve_config(read_settings({}, {}, None), "gopher://bucket/models", cores=1)


def test_storage_options_are_given_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "anabranch.yaml"
    file.write_text("storage_options: {key: someone, secret: hidden, client_kwargs: {a: 1}}\n")
    given = {"ANABRANCH_STORAGE_OPTIONS": '{"key": "someone", "secret": "hidden"}'}

    by_file, by_environment = read_settings({}, {}, file), read_settings({}, given, None)

    told = serve_config(by_environment, "s3://bucket/models", cores=1).repository.storage_options
    assert told == {"key": "someone", "secret": "hidden"}
    assert by_file.settings.storage_options["client_kwargs"] == {"a": 1}
    for read in (by_file, by_environment):
        assert read.shown()["storage_options"] == "***"
        assert "hidden" not in repr(serve_config(read, "s3://bucket/models", cores=1))
    with pytest.raises(InvalidInput, match="STORAGE_OPTIONS: expected a JSON object") as caught:
        read_settings({}, {"ANABRANCH_STORAGE_OPTIONS": "{hidden"}, None)
    assert "hidden" not in caught.value.message


def test_a_model_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "ctr" / "1").mkdir(parents=True)
    (tmp_path / "ctr" / "1" / "model.onnx").touch()
    read = read_settings({}, {}, None)

    serve_config(read, str(tmp_path), cores=1)
    with pytest.raises(InvalidInput, match=f"the repository is {tmp_path}, one level up"):
        serve_config(read, str(tmp_path / "ctr"), cores=1)


def test_every_group_of_the_contract_is_there() -> None:
    groups = {name.partition(".")[0] for name in SETTINGS if "." in name}
    wanted = "limits tls auth store switch runtime http grpc gpu feature_log explain_log watch"
    assert groups == set(wanted.split())


def test_every_setting_can_be_given_in_the_environment() -> None:
    for name, default in SETTINGS.items():
        variable = "ANABRANCH_" + name.replace(".", "__").upper()
        if default is None:
            continue
        read = read_settings({}, {variable: str(default).lower()}, None)
        assert read.spellings == {name: variable}
        assert not read.changed()


def test_repositories_keep_their_holds_apart(tmp_path: Path) -> None:
    read = read_settings({}, {"XDG_STATE_HOME": "/s"}, None)
    paths = [tmp_path / name / "models" for name in ("a", "b")]
    for path in paths:
        path.mkdir(parents=True)

    one, other = (serve_config(read, str(path), cores=1).folders.state for path in paths)

    assert one != other
    assert {one.parent, other.parent} == {Path("/s/anabranch")}
