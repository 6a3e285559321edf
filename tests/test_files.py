"""Which folders are versions of an export."""

import pytest

from keras_transformer.files import exported_versions, is_version_name, version_of


@pytest.mark.parametrize(
    ("name", "version"),
    [("0", 0), ("12", 12), ("007", 7), ("9" * 18, 10**18 - 1)]
    + [(name, None) for name in ("model", "-1", "²", "٣", "1.5", "", "9" * 19)],
)
def test_names_of_versions(name, version):
    assert is_version_name(name) == (version is not None)
    assert version_of(f"/x/y-{name}") == 1
    if name:
        assert version_of(f"/x/{name}") == (1 if version is None else version)


def test_exported_versions(tmp_path):
    for name in ("2", "10", "11", "12", "x13", "writing-14-abc"):
        (tmp_path / name).mkdir()
        if name not in ("11", "12"):
            (tmp_path / name / "saved_model.pb").write_bytes(b"")
    (tmp_path / "12" / "saved_model.pb").mkdir()
    (tmp_path / "15").write_bytes(b"")
    assert exported_versions(tmp_path) == {2: tmp_path / "2", 10: tmp_path / "10"}
    assert exported_versions(str(tmp_path / "10")) == {10: tmp_path / "10"}
    assert exported_versions(tmp_path / "x13") == {1: tmp_path / "x13"}
    for nothing in ("11", "15", "missing"):
        assert exported_versions(tmp_path / nothing) == {}
