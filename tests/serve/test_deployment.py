"""Config files: what they may say, what the older recipes' keys became, and that one edit moves all to the CPU."""

import re
import textwrap
from pathlib import Path

import pytest

from vela.graphs import errors, heads
from vela.serve.deployment import REPLACED, Config, Deployment
from vela.serve.device import CPU, Device

DOCS = Path(__file__).resolve().parents[2] / "docs"
# The shape of the router's AMD recipe: ten models, two placements.
RECIPE = """
use_cpu: {use_cpu}
deployments:
{deployments}
"""
ON_MIGRAPHX = ("domain", "pii", "feedback", "factcheck", "modality", "safety", "hazard")
ON_ROCM = ("guard", "embedding", "reranker")


def recipe(path: Path, *, use_cpu: str = "false") -> Path:
    entries = [(name, "migraphx:0", 8192, "reject") for name in ON_MIGRAPHX]
    entries += [(name, "rocm:0", 32768, "reject") for name in ON_ROCM]
    listed = "\n".join(
        f"  - {{model: {name}, device: '{device}', input: {{max_tokens: {tokens}, overflow: {overflow}}}}}"
        for name, device, tokens, overflow in entries
    )
    path.write_text(RECIPE.format(use_cpu=use_cpu, deployments=listed))
    return path


def config(path: Path, text: str) -> Path:
    file = path / "config.yaml"
    file.write_text(text)
    return file


def test_a_recipe_of_ten_models_names_two_placements(tmp_path: Path) -> None:
    found = Config.read(recipe(tmp_path / "amd.yaml")).deployments

    assert list(found) == [*ON_MIGRAPHX, *ON_ROCM]
    assert {found[name].device for name in ON_MIGRAPHX} == {Device("migraphx")}
    assert {found[name].device for name in ON_ROCM} == {Device("rocm")}
    assert found["domain"] == Deployment(Device("migraphx"), max_tokens=8192, overflow="reject")


def test_one_word_moves_all_of_it_to_the_cpu_and_changes_nothing_else(tmp_path: Path) -> None:
    there = Config.read(recipe(tmp_path / "gpu.yaml")).deployments
    here = Config.read(recipe(tmp_path / "cpu.yaml", use_cpu="true")).deployments

    assert {deployment.device for deployment in here.values()} == {CPU}
    assert [(one.max_tokens, one.overflow, one.window) for one in here.values()] == [
        (one.max_tokens, one.overflow, one.window) for one in there.values()
    ]


def test_what_is_left_out_is_left_to_the_model(tmp_path: Path) -> None:
    found = Config.read(config(tmp_path, "deployments: [{model: a}]")).deployments

    assert found == {"a": Deployment()}


def test_windows_and_the_profile_are_taken(tmp_path: Path) -> None:
    text = "deployments: [{model: a, input: {overflow: window}, window: {tokens: 512, overlap: 64}, profile: batching}]"

    (found,) = Config.read(config(tmp_path, text)).deployments.values()

    assert found == Deployment(profile="batching", overflow="window", window=heads.Window(512, 64))


@pytest.mark.parametrize("key", REPLACED)
def test_a_key_of_an_older_recipe_says_what_replaces_it(tmp_path: Path, key: str) -> None:
    file = config(tmp_path, f"deployments:\n  - model: a\n  - model: guard\n    {key}: onnx/model_rocm_8k.onnx\n")

    with pytest.raises(errors.InvalidRequest) as refused:
        Config.read(file)

    assert f"the key {key!r}" in str(refused.value)
    assert "$.deployments[1]" in str(refused.value)
    assert REPLACED[key][1:] in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "null"),
        ("[]", "array"),
        ("deployments: []", "length >= 1"),
        ("deployments: [{}]", "`model`"),
        ("deployments: [{model: a, colour: red}]", "colour"),
        ("deployments: [{model: a}]\nthreads: 3", "threads"),
        ("deployments: [{model: a, input: {overflow: cut}}]", "cut"),
        ("deployments: [{model: a, input: {max_tokens: 0}}]", ">= 2"),
        ("deployments: [{model: a, window: {tokens: 512}}]", "overlap"),
        ("deployments: [{model: a, profile: fast}]", "fast"),
        ("deployments: [{model: a}, {model: a}]", "'a' twice"),
        ("use_cpu: maybe\ndeployments: [{model: a}]", "use_cpu"),
        ("deployments: [{model: a", "no YAML"),
        ("a: !!python/object/apply:os.system ['true']", "no YAML"),
        ("x" * (1 << 21), "more than"),
    ],
)
def test_what_is_no_config_is_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        Config.read(config(tmp_path, text))

    assert said in str(refused.value)
    assert "config.yaml" in str(refused.value)


def test_a_device_of_no_such_name_is_refused_even_where_the_cpu_takes_all(tmp_path: Path) -> None:
    with pytest.raises(errors.ProviderUnavailable, match="gpu:0"):
        Config.read(config(tmp_path, "use_cpu: true\ndeployments: [{model: a, device: 'gpu:0'}]"))


HEAD = heads.Head("default", "text", heads.SequenceDecoder(("a", "b")), 512, "reject")


def test_a_deployment_limits_its_head() -> None:
    found = Deployment(max_tokens=128, overflow="window", window=heads.Window(64, 16)).limit(HEAD)

    assert (found.max_tokens, found.overflow, found.window) == (128, "window", heads.Window(64, 16))
    assert Deployment().limit(HEAD) == HEAD


@pytest.mark.parametrize(
    ("deployment", "said"), [(Deployment(max_tokens=513), "at most 512"), (Deployment(overflow="window"), "window")]
)
def test_a_deployment_cannot_ask_for_more_than_was_verified(deployment: Deployment, said: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=said):
        deployment.limit(HEAD)


def serve_check(vela, store: Path, text: str, tmp_path: Path) -> tuple[int, str]:
    status, _, err = vela("serve", "--store", str(store), "--config", str(config(tmp_path, text)), "--check")
    return status, err


def test_check_says_what_would_be_loaded_without_loading_it(bag_store: Path, tmp_path: Path, vela, monkeypatch) -> None:
    monkeypatch.setattr("vela.serve.engine.Session.open", None)  # nobody opens a graph

    status, err = serve_check(
        vela, bag_store, "deployments: [{model: mood, input: {max_tokens: 32}}, {model: names}]", tmp_path
    )

    assert status == 0
    assert "mood: cpu, up to 32 tokens: model" in err
    assert "names: cpu" in err


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{model: nobody}", "nobody"),
        ("{model: mood, device: 'migraphx:0'}", "MIGraphXExecutionProvider"),
        ("{model: mood, input: {max_tokens: 99999}}", "at most 64"),
    ],
)
def test_check_says_what_is_wrong(bag_store: Path, tmp_path: Path, vela, entry: str, said: str) -> None:
    status, err = serve_check(vela, bag_store, f"deployments: [{{model: names}}, {entry}]", tmp_path)

    assert status == 1
    assert said in err


def test_a_config_and_options_that_say_the_same_are_misuse(bag_store: Path, tmp_path: Path, vela) -> None:
    file = config(tmp_path, "deployments: [{model: mood}]")

    status, _, err = vela("serve", "--store", str(bag_store), "--config", str(file), "--models", "mood", "--check")

    assert status == 2
    assert "--config says what" in err


@pytest.mark.parametrize("guide", ["serve.md", "amd.md"])
def test_what_the_guides_show_can_be_read(guide: str, tmp_path: Path) -> None:
    shown = re.findall(r"(?m)^    use_cpu:.*\n(?:^ {4,}.*\n)+", (DOCS / guide).read_text())

    assert shown
    for block in shown:
        assert len(Config.read(config(tmp_path, textwrap.dedent(block))).deployments) == 2


def test_the_guide_shows_every_key() -> None:
    """An unknown field's error sends its reader there."""
    shown = (DOCS / "serve.md").read_text().partition("    use_cpu:")[2].partition("\n\n")[0]

    for key in ("deployments", "model", "device", "input", "window", "profile", "max_tokens", "overflow", "overlap"):
        assert re.search(rf"\b{key}:", shown), key
    assert "{tokens:" in shown
