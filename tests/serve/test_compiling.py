"""Compiled programs through a whole load: what they are made from, kept after golden answers only, never stale.

`migraphx` stands in for the provider: it answers from the program that it finds under the graph's name, as MIGraphX's
own cache does, and runs on the CPU.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vela.graphs import bundle as opening
from vela.graphs import errors
from vela.serve import compiling, engine, providers
from vela.serve.compile_cache import CompileCache
from vela.serve.compiling import Compiling
from vela.serve.deployment import Deployment
from vela.serve.device import CPU, Device
from vela.serve.model import ServedModel

DEVICE = Device("migraphx")
SAMPLE = "tiny-intent"


class Stale(engine.Session):
    """A session whose program was compiled from other weights."""

    def run(self, inputs: Any, run_options: Any = None) -> engine.Outputs:
        return {name: values + 1.0 for name, values in super().run(inputs, run_options).items()}


@pytest.fixture
def migraphx(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let graphs be opened on `migraphx:0`; gives the graphs that were compiled."""
    compiled: list[str] = []
    inner = engine.Session.open.__func__

    def open_graph(cls: type, path: Path, graph: Any, device: Device, options: Any = None, programs: Any = None) -> Any:
        program = None if programs is None else programs / f"{graph.batch}-{graph.sequence}.mxr"
        content = f"{graph.sha256}".encode()
        if program is None or not program.exists():
            compiled.append(graph.id)
            if program is not None:
                program.write_bytes(content)
        trusted = program is None or program.read_bytes() == content
        return inner(engine.Session if trusted else Stale, path, graph, CPU, options)

    monkeypatch.setattr(engine.Session, "open", classmethod(open_graph))
    monkeypatch.setattr(providers, "require_provider", lambda *_: None)
    monkeypatch.setattr(compiling, "processor_of", lambda _: "gfx942")
    return compiled


@pytest.fixture
def load(bundles: dict[str, Path], tmp_path: Path, migraphx: list[str]) -> Callable[..., ServedModel]:
    def run(*, must_be_warm: bool = False, folder: Path | None = None) -> ServedModel:
        kept = Compiling(CompileCache(tmp_path / "cache"), must_be_warm)
        opened = opening.Bundle.open(folder or bundles[SAMPLE])
        return ServedModel.open(opened, Deployment(DEVICE), demand="nothing", compiling=kept)

    return run


def test_a_second_start_compiles_nothing(load, migraphx: list[str]) -> None:
    first = load()
    assert migraphx == list(first.loaded)
    assert first.golden_count > 0

    load()

    assert migraphx == list(first.loaded)


def test_a_start_that_would_compile_is_refused_where_asked(load, migraphx: list[str]) -> None:
    with pytest.raises(errors.CompileCacheInvalid, match="vela compile"):
        load(must_be_warm=True)
    assert migraphx == []

    load()
    count = len(migraphx)
    load(must_be_warm=True)
    assert len(migraphx) == count


def test_without_golden_answers_nothing_is_kept(load, migraphx: list[str], bundles, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bundles[SAMPLE], tmp_path / "bundle"))
    (folder / "golden.json").unlink()

    load(folder=folder)
    count = len(migraphx)
    load(folder=folder)

    assert len(migraphx) == 2 * count


def test_a_program_that_answers_otherwise_is_not_served_and_not_kept(load, tmp_path: Path) -> None:
    load()
    entries = [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    (program,) = (entries[0] / "programs").iterdir()
    _replace(entries[0], program, b"what a compiler with a bug made of it")

    with pytest.raises(errors.GoldenMismatch):
        load()

    assert load().golden_count > 0


def _replace(entry: Path, program: Path, content: bytes) -> None:
    """Replace a program and its digest, as only its maker could."""
    from vela.graphs import digests

    for path in (program, entry / "entry.json"):
        path.chmod(0o600)
    before = digests.sha256_of_file(program).encode()
    program.write_bytes(content)
    told = (entry / "entry.json").read_bytes()
    (entry / "entry.json").write_bytes(told.replace(before, digests.sha256_of_bytes(content).encode()))


def test_an_identity_is_about_the_files_of_the_bundle(bundles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "processor_of", lambda _: "gfx942")
    opened = opening.Bundle.open(bundles[SAMPLE])
    fixed = [graph for graph in opened.manifest.graphs if graph.target == "portable"]

    found = [compiling.identity_of(opened, graph, DEVICE, {"MIGRAPHX_X": "1", "HOME": "/"}) for graph in fixed]

    assert len({identity.digest for identity in found}) == len(fixed) > 1
    assert {tuple(identity.weights) for identity in found} == {("model.safetensors",)}
    assert found[0].environment == {"MIGRAPHX_X": "1"}
    with pytest.raises(ValueError, match="no fixed shape"):
        compiling.identity_of(opened, next(graph for graph in opened.manifest.graphs if not graph.sequence), DEVICE)


@pytest.mark.parametrize(
    ("version", "name"), [(90402, "gfx942"), (90010, "gfx90a"), (110000, "gfx1100"), (120001, "gfx1201")]
)
def test_a_gpu_is_named_as_its_compiler_names_it(tmp_path: Path, version: int, name: str) -> None:
    for number, found in enumerate((0, version)):  # the first node is the CPU
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "properties").write_text(f"simd_count 4\ngfx_target_version {found}\n")

    assert compiling.processor_of(DEVICE, tmp_path) == name
    with pytest.raises(errors.ProviderUnavailable, match="1 AMD GPUs"):
        compiling.processor_of(Device("migraphx", 1), tmp_path)


def test_loaded_libraries_that_compile_are_part_of_it(tmp_path: Path) -> None:
    names = ("libmigraphx_gpu.so.2015000.0.70204", "libamdhip64.so.7.2.70204", "libc.so.6", "libmigraphx.so.old.txt")
    for name in names:
        (tmp_path / name).write_bytes(name.encode())

    found = compiling._libraries(tmp_path / name for name in names)

    assert set(found) == set(names[:2])


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "rocm:0"])
def test_compiling_for_what_compiles_nothing_is_refused(vela, store: Path, tmp_path: Path, device: str) -> None:
    status, _, err = vela("compile", "--store", str(store), "--device", device, "--compile-cache", str(tmp_path / "c"))

    assert status == 1
    assert "compiles nothing" in err
