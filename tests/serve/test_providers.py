"""What is asked of a provider, and what is refused before it is asked."""

import msgspec
import pytest

from vela.graphs import bundle as bundles
from vela.graphs import contract, errors
from vela.serve import providers
from vela.serve.device import CPU, Device
from vela.serve.runtime import installed_build, onnxruntime

OFFERED = ["MIGraphXExecutionProvider", "ROCMExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]


@pytest.fixture
def every_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that says that it offers every provider, as builds do whose libraries are missing."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: OFFERED)


@pytest.fixture
def every_library(monkeypatch: pytest.MonkeyPatch, every_build: None) -> None:
    """A machine on which they load."""
    monkeypatch.setattr(providers, "_require_libraries", lambda _: None)


@pytest.mark.parametrize("device", ["migraphx:0", "rocm:1", "cuda:0"])
def test_a_device_that_the_build_does_not_offer_is_refused_with_what_offers_it(device: str) -> None:
    with pytest.raises(errors.ProviderUnavailable) as refused:
        providers.require_provider(Device.parse(device), {})

    assert f"vela-onnx[{device.partition(':')[0]}]" in str(refused.value)
    assert installed_build()[0] in str(refused.value)


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("migraphx:0", "ORT_MIGRAPHX_FP16_ENABLE"),
        ("migraphx:0", "ORT_MIGRAPHX_MODEL_CACHE_PATH"),
        ("migraphx:0", "ORT_MIGRAPHX_WHATEVER_COMES_NEXT"),
        ("rocm:0", "ORT_ROCM_TUNABLE_OP_ENABLE"),
        ("cuda:0", "NVIDIA_TF32_OVERRIDE"),
    ],
)
@pytest.mark.usefixtures("every_library")
def test_a_variable_that_overrides_options_is_refused_even_as_0(device: str, name: str) -> None:
    with pytest.raises(errors.ProviderUnavailable, match=f"Unset {name}"):
        providers.require_provider(Device.parse(device), {name: "0", "PATH": "/bin"})

    providers.require_provider(Device.parse(device), {name: "", "PATH": "/bin"})
    providers.require_provider(CPU, {name: "0"})


@pytest.mark.parametrize("kind", ["migraphx", "rocm", "cuda"])
@pytest.mark.usefixtures("every_build")
def test_a_library_that_is_missing_has_a_name(kind: str) -> None:
    with pytest.raises(errors.ProviderUnavailable) as refused:
        providers.require_provider(Device.parse(f"{kind}:0"), {})

    assert f"libonnxruntime_providers_{kind}.so" in str(refused.value)
    assert Device.parse(f"{kind}:0").provider in str(refused.value)


@pytest.mark.parametrize(
    ("device", "name"), [("migraphx:0", "MIGRAPHX_MLIR_USE_SPECIFIC_OPS"), ("cuda:0", "CUBLAS_WORKSPACE_CONFIG")]
)
def test_a_variable_that_changes_what_is_compiled_is_recorded(device: str, name: str) -> None:
    facts = providers.engine_facts(Device.parse(device), threads=2, optimise=True, environment={name: "x", "HOME": "/"})

    assert facts.options[name] == "x"
    assert "HOME" not in facts.options


def test_what_decides_numbers_is_off_where_it_is_on_by_default() -> None:
    assert providers.provider_options(Device.parse("cuda:1"))["use_tf32"] == "0"
    assert providers.provider_options(Device.parse("rocm:1"))["tunable_op_enable"] == "0"
    assert providers.provider_options(Device.parse("migraphx:3")) == {"device_id": "3"}


@pytest.mark.parametrize(
    ("precision", "tokens", "kernels"),
    [("fp32", 8192, "2"), ("fp16", 64, "2"), ("fp16", 128, "0"), ("bf16", 8192, "0"), ("fp32", None, "2")],
)
def test_long_copies_run_the_kernels_that_the_engine_chooses(bags, precision, tokens, kernels) -> None:
    (graph,) = bundles.Bundle.open(bags["mood"]).manifest.graphs
    inputs = contract.graph_inputs("batch", "sequence") if tokens is None else contract.graph_inputs(1, tokens)
    found = providers.attention_kernels(msgspec.structs.replace(graph, precision=precision, inputs=inputs))

    assert found == kernels
    assert providers.provider_options(Device.parse("cuda:0"), kernels=found)["sdpa_kernel"] == kernels
    assert providers.engine_facts(Device.parse("cuda:0"), threads=1, optimise=True, kernels=found, environment={})


@pytest.mark.parametrize("name", ["ORT_DISABLE_FLASH_ATTENTION", "ORT_ENABLE_LEAN_ATTENTION", "ORT_MIN_SEQ_LEN_X"])
def test_variables_with_a_say_in_that_choice_are_overrides(name) -> None:
    assert providers.named(providers.OVERRIDES["cuda"], {name: "1", "ORT_DISABLE_TELEMETRY": "1"}) == [name]
