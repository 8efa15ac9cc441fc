"""How a device's provider is asked for: which build offers it, with which options, in which environment.

Nothing here falls back. The provider is the only one listed, ONNX Runtime's own retry on the CPU is off, and variables
of the environment that would override what is asked for are refused, because a record would name other options than
those that ran.
Source: reference measurements with ONNX Runtime 1.22.2 to 1.32.0 on how a session falls back silently.
"""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vela.graphs import errors, manifest, record
from vela.serve import device as devices
from vela.serve import host
from vela.serve.runtime import installed_build, onnxruntime

# Memory-efficient attention at every length. By default FP32 gets it from 256 tokens on only, and below that a chain of
# six kernels. Source: ONNX Runtime's AttentionKernelOptions; H200, 64 tokens: 1.77 ms with it, 1.90 ms without.
CUDA_EFFICIENT_ATTENTION = "2"
# 16-bit copies of more tokens have a choice of kernels, flash attention among them, and ONNX Runtime's is faster.
# Source: H200, FP16, ms with the above and with its choice: 0.91 and 0.96 at 16 tokens, 1.15 and 1.14 at 128, 1.85 and
# 1.67 at 512, 4.7 and 3.9 at 2,048, 30.7 and 18.1 at 8,192.
CUDA_CHOSEN_ATTENTION = "0"
CUDA_CHOOSES_ABOVE = 64  # tokens

# Where the choice is ONNX Runtime's, these have a say in it. Source: its attention_kernel_options.cc.
CUDA_ATTENTION_VARIABLES = (
    *("ORT_DISABLE_FLASH_ATTENTION", "ORT_DISABLE_MEMORY_EFFICIENT_ATTENTION", "ORT_DISABLE_FUSED_ATTENTION"),
    *("ORT_DISABLE_TRT_FLASH_ATTENTION", "ORT_DISABLE_FUSED_CROSS_ATTENTION"),
    *("ORT_ENABLE_CUDNN_FLASH_ATTENTION", "ORT_ENABLE_FUSED_CAUSAL_ATTENTION", "ORT_ENABLE_LEAN_ATTENTION"),
    "ORT_MIN_SEQ_LEN_",
)

# Variables that override what a session asks for, by kind of device: whole names, or beginnings that end in `_`.
# Source: the MIGraphX provider reads them over its options, a value of 0 included; cuBLAS reads NVIDIA's.
OVERRIDES: Mapping[devices.DeviceKind, tuple[str, ...]] = {
    "cpu": (),
    "migraphx": ("ORT_MIGRAPHX_",),
    "rocm": ("ORT_ROCM_", "PYTORCH_TUNABLEOP_"),
    "cuda": ("NVIDIA_TF32_OVERRIDE", "ORT_CUDNN_", "ORT_TENSORRT_", *CUDA_ATTENTION_VARIABLES),
}
# Where the libraries of a provider come from.
LIBRARIES: Mapping[devices.DeviceKind, str] = {
    "migraphx": "ROCm 7.2 with MIGraphX, as in deploy/Dockerfile.migraphx",
    "rocm": "ROCm 7, as in AMD's rocm/dev images",
    "cuda": "CUDA 13 and cuDNN 9: the nvidia-* packages of PyPI, or NVIDIA's images",
}
# Variables that change how a graph is compiled and that operators may need: they are written into the record.
RECORDED: Mapping[devices.DeviceKind, tuple[str, ...]] = {
    "cpu": ("ORT_DISABLE_FLASH_ATTENTION",),
    "migraphx": ("MIGRAPHX_", "HIP_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION"),
    "rocm": ("MIOPEN_", "HIP_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION"),
    "cuda": ("CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES"),
}


def require_provider(device: devices.Device, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse a device that this build or this machine cannot offer, or whose options the environment would override.

    Raises:
        ProviderUnavailable: with what to install or to unset.
    """
    package, version = installed_build()
    offered = onnxruntime.get_available_providers()
    if device.provider not in offered:
        raise errors.ProviderUnavailable(
            f"{package} {version}, which offers {', '.join(offered)}",
            expected=f"a build with {device.provider}",
            where=f"--device {device}",
            fix=f"Install vela-onnx[{device.kind}] in an environment without {package}, or ask for a device it has.",
        )
    if names := [name for name in named(OVERRIDES[device.kind], environment) if environment[name]]:
        raise errors.ProviderUnavailable(
            f"{', '.join(f'{name}={environment[name]}' for name in names)} in the environment",
            expected="none of these, since they override what was asked for and proven",
            where=f"--device {device}",
            fix=f"Unset {', '.join(names)}; precision and cache are options of Vela.",
        )
    if device.kind != "cpu":
        _require_libraries(device)


def _require_libraries(device: devices.Device) -> None:
    """Load the provider's library, and with it those that it needs, so that a missing one has a name.

    ONNX Runtime does this too, when the first session is made: 1.22 then only logs what is missing, and says that nodes
    were left to the CPU.
    """
    folder = Path(onnxruntime.__file__).parent / "capi"
    if device.kind == "cuda" and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # what pip installed lies where no loader looks
    try:
        ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / f"libonnxruntime_providers_{device.kind}.so"))
    except OSError as cause:
        raise errors.ProviderUnavailable(
            f"{' '.join(installed_build())}, whose {device.provider} does not load: {cause}",
            expected=f"the libraries that {device.provider} needs",
            where=f"--device {device}",
            fix=f"Install them ({LIBRARIES[device.kind]}), or ask for --device cpu.",
        ) from cause


def named(patterns: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    """Give the variables of an environment with these names, or that begin so where a pattern ends in `_`."""
    return sorted(
        name
        for name in environment
        if any(name == pattern or (pattern.endswith("_") and name.startswith(pattern)) for pattern in patterns)
    )


def session_options(device: devices.Device, *, threads: int, optimise: bool) -> Any:
    """Make ONNX Runtime's SessionOptions."""
    inner = onnxruntime.SessionOptions()
    inner.intra_op_num_threads = threads
    inner.inter_op_num_threads = 1
    inner.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    levels = onnxruntime.GraphOptimizationLevel
    inner.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    inner.log_severity_level = 3
    entries = {
        "session.record_ep_graph_assignment_info": "1",
        # Threads wait for the next operator of a run awake, and sleep between runs: waking one takes longer than a
        # small operator. Source: measured, 64 tokens on an otherwise idle machine, 0.19 s asleep and 0.14 s awake.
        "session.intra_op.allow_spinning": "1",
        "session.force_spinning_stop": "1",
    }
    if device.kind != "cpu":
        entries["session.disable_cpu_ep_fallback"] = "1"
    for key, value in entries.items():
        inner.add_session_config_entry(key, value)
    return inner


def attention_kernels(graph: manifest.Graph) -> str:
    """Name which kernels of attention CUDA's provider may take for a graph, as its option `sdpa_kernel` does."""
    is_long = graph.sequence is not None and graph.sequence > CUDA_CHOOSES_ABOVE
    return CUDA_CHOSEN_ATTENTION if graph.is_reduced and is_long else CUDA_EFFICIENT_ATTENTION


def provider_options(
    device: devices.Device,
    programs: Path | None = None,
    *,
    is_recorded: bool = False,
    kernels: str = CUDA_EFFICIENT_ATTENTION,
) -> dict[str, str]:
    """Give what a device's provider is told; all of it is written into the record, but for where programs are.

    Args:
        device: The device.
        programs: Folder of compiled programs, for a provider that keeps them.
        is_recorded: Whether runs are recorded once and replayed.
        kernels: Of attention, as `attention_kernels` names them.
    """
    match device.kind:
        case "cpu":
            return {}
        case "cuda":
            options = {"device_id": str(device.index), "use_tf32": "0", "sdpa_kernel": kernels}
            return options | ({"enable_cuda_graph": "1"} if is_recorded else {})
        case "rocm":
            # tuning picks other products from run to run
            return {"device_id": str(device.index), "tunable_op_enable": "0", "tunable_op_tuning_enable": "0"}
        case "migraphx":
            kept = {} if programs is None else {"migraphx_model_cache_dir": str(programs)}
            return {"device_id": str(device.index)} | kept


def engine_facts(
    device: devices.Device,
    *,
    threads: int,
    optimise: bool,
    is_recorded: bool = False,
    kernels: str = CUDA_EFFICIENT_ATTENTION,
    environment: Mapping[str, str] = os.environ,
) -> record.EngineFacts:
    """Name the engine, as records do, with every option and variable that can change an answer."""
    package, version = installed_build()
    stated = {"optimise": str(optimise).lower(), "threads": str(threads)}
    variables = {name: environment[name] for name in named(RECORDED[device.kind], environment)}
    return record.EngineFacts(
        runtime="onnxruntime",
        version=version,
        package=package,
        provider=device.provider,
        device=str(device),
        architecture=host.instruction_set(),
        options=stated | provider_options(device, is_recorded=is_recorded, kernels=kernels) | variables,
    )
