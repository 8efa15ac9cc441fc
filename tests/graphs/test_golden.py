"""The file of golden answers: read as it was written, refused where it is another bundle's or proves nothing."""

import json
from types import SimpleNamespace

import pytest

from vela.graphs import contract, errors, golden

MANIFEST = "ab" * 32
CONTENT = golden.Golden(
    schema_version=1,
    manifest_sha256=MANIFEST,
    checkpoint_sha256="cd" * 32,
    reference="torch",
    command="vela verify-graph",
    tools={"numpy": "2.4"},
    bounds={"cpu": 2e-5, "gpu": 4e-3},
    probes=(golden.Probe("c1", (1, 2, 3), {"logits": golden.Values((2,), (0.25, -1.5))}),),
)


@pytest.fixture
def bundle(tmp_path):
    return SimpleNamespace(folder=tmp_path, manifest_sha256=MANIFEST)


def test_what_is_written_is_read(bundle) -> None:
    golden.write(bundle, CONTENT)

    assert golden.read(bundle) == CONTENT
    assert not list(bundle.folder.glob("*.partial"))


def test_a_bundle_may_have_none_and_lose_them_again(bundle) -> None:
    assert golden.read(bundle) is None

    golden.write(bundle, CONTENT)
    golden.remove(bundle)
    golden.remove(bundle)

    assert golden.read(bundle) is None


def test_another_bundles_answers_are_refused(bundle) -> None:
    golden.write(bundle, CONTENT)
    bundle.manifest_sha256 = "ef" * 32

    with pytest.raises(errors.BundleError, match="answers for the manifest abababababab"):
        golden.read(bundle)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(bounds={"cpu": 1e9, "gpu": 4e-3}),
        lambda content: content.update(bounds={"cpu": 0.0, "gpu": 4e-3}),
        lambda content: content.update(bounds={"cpu": None, "gpu": 4e-3}),
        lambda content: content.update(bounds={"cpu": 2e-5}),
        lambda content: content.update(probes=[]),
        lambda content: content.update(probes=content["probes"] * 33),
        lambda content: content["probes"][0].update(ids=[]),
        lambda content: content["probes"][0].update(outputs={}),
        lambda content: content["probes"][0]["outputs"]["logits"].update(shape=[1 << 40]),
        lambda content: content["probes"][0]["outputs"]["logits"].update(numbers=[None, 1.0]),
        lambda content: content.update(schema_version=2),
        lambda content: content.update(more=1),
    ],
)
def test_content_that_proves_nothing_is_refused(bundle, change) -> None:
    golden.write(bundle, CONTENT)
    path = bundle.folder / contract.GOLDEN_FILE
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))

    with pytest.raises(errors.BundleError, match=r"golden\.json"):
        golden.read(bundle)


def test_a_link_is_not_followed(bundle, tmp_path_factory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "golden.json"
    elsewhere.write_bytes(b"{}")
    (bundle.folder / contract.GOLDEN_FILE).symlink_to(elsewhere)

    with pytest.raises(errors.BundleError, match="a symbolic link"):
        golden.read(bundle)
