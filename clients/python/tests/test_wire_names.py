from collections.abc import Callable

import pytest

from anabranch_wire import names
from anabranch_wire.errors import InvalidInput


@pytest.mark.parametrize("text", ["ctr", "0", "A-b_c.d", "x" * 128, "a.b"])
def test_model_names(text: str) -> None:
    assert names.check_model_name(text) == text


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a..b", "-a", "_a", ".a", "a/b", "a b", "é", "x" * 129, "a\n", "a\0"]
)
def test_other_model_names_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected 1 to 128 of A-Z"):
        names.check_model_name(text)


def test_versions() -> None:
    assert names.parse_version("42") == 42
    assert names.parse_version("9" * 18) == 10**18 - 1


@pytest.mark.parametrize(
    "text", ["", "0", "042", "-1", "+1", "1.0", "9" * 19, "٣", "1\n", "stable"]
)
def test_other_versions_are_refused(text: str) -> None:
    assert not names.is_version(text)
    with pytest.raises(InvalidInput, match="expected 1 to 18 digits"):
        names.parse_version(text)


def test_labels() -> None:
    assert names.check_label("canary-2_b") == "canary-2_b"
    assert names.is_label("a" * 63)


@pytest.mark.parametrize("text", ["", "42", "Canary", "-a", "a.b", "a" * 64, "a\n"])
def test_other_labels_are_refused(text: str) -> None:
    assert not names.is_label(text)
    with pytest.raises(InvalidInput, match="expected 1 to 63 of a-z"):
        names.check_label(text)


@pytest.mark.parametrize("text", ["x", "onnx::MatMul_12", "../x", "é" * 256, "a\0b"])
def test_tensor_names_are_nearly_free(text: str) -> None:
    assert names.check_tensor_name(text) == text


@pytest.mark.parametrize("text", ["", "é" * 257])
def test_empty_and_long_tensor_names_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected 1 to 512 bytes"):
        names.check_tensor_name(text)


@pytest.mark.parametrize(
    "text", ["a", "a/b", "tables/0000.seg", "...", "a b", "ü", "-a", "~", "C:"]
)
def test_relative_paths(text: str) -> None:
    assert names.check_relative_path(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "/", "/a", "a/", "a//b", ".", "./a", "..", "a/../b", "a\\b", "a\0", "a\n", "a" * 1025],
)
def test_paths_that_could_leave_the_folder_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="path "):
        names.check_relative_path(text)


@pytest.mark.parametrize("check", [names.check_tensor_name, names.check_relative_path])
def test_text_without_utf8_form_is_refused(check: Callable[[str], str]) -> None:
    with pytest.raises(InvalidInput, match="surrogate"):
        check("a\ud800")
