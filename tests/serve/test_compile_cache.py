"""Programs on disk never answer for another graph, and are never half there; a provider's own cache does both.

`Provider` is MIGraphX's cache as it is: a program is known by the graph's file name and its dimensions, and what lies
under that name is loaded without a look at what it was made from.
Source: reference/onnxruntime.md §1.5.
"""

import multiprocessing
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from vela.graphs import digests, durable, errors
from vela.serve.compile_cache import ENTRY, PROGRAMS, CompileCache, Identity

SHAPE = (1, 64)


@dataclass
class Provider:
    """Compiles a graph, which takes a while, or loads what it finds.

    Attributes:
        compiled: How often it compiled.
        seconds: How long it takes.
    """

    compiled: int = 0
    seconds: float = 0.0

    def open(self, model: Path, precision: str, cache: Path) -> bytes:
        """Give the program, which is what it answers."""
        file = cache / f"{model.name}-{SHAPE}.mxr"
        if not file.exists():
            self.compiled += 1
            time.sleep(self.seconds)
            file.write_bytes(answer_of(model, precision))
        return file.read_bytes()


def answer_of(model: Path, precision: str) -> bytes:
    return model.with_name("weights").read_bytes() + precision.encode()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "weights").write_bytes(b"one")
    graph = tmp_path / "model.onnx"
    graph.write_bytes(b"graph")
    return graph


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def identity_of(model: Path, precision: str = "fp32", **changed: object) -> Identity:
    made = Identity(
        graph=digests.sha256_of_file(model),
        weights={"weights": digests.sha256_of_file(model.with_name("weights"))},
        rows=SHAPE[0],
        tokens=SHAPE[1],
        precision=precision,
        options={"device_id": "0"},
        versions={"onnxruntime-migraphx": "1.27.1", "migraphx": "2.15"},
        processor="gfx942",
        environment={},
    )
    return msgspec.structs.replace(made, **changed)


def ask(root: Path, model: Path, provider: Provider, precision: str = "fp32") -> bytes:
    """Open a graph through the cache, and prove it."""
    with CompileCache(root).check_out(identity_of(model, precision)) as checkout:
        answer = provider.open(model, precision, checkout.folder)
        if answer != answer_of(model, precision):
            raise errors.GoldenMismatch(repr(answer), expected="the golden answer", where="cache", fix="")
        checkout.is_proven = True
    return answer


def test_the_provider_alone_answers_with_a_stale_program(model: Path, root: Path) -> None:
    provider = Provider()
    root.mkdir()
    before = provider.open(model, "fp32", root)
    model.with_name("weights").write_bytes(b"two")

    after = provider.open(model, "fp16", root)

    assert after == before != answer_of(model, "fp16")


def test_a_program_is_compiled_once_and_then_found(model: Path, root: Path) -> None:
    provider = Provider()

    answers = [ask(root, model, provider) for _ in range(3)]

    assert answers == [b"onefp32"] * 3
    assert provider.compiled == 1


def test_other_weights_under_the_same_name_and_another_precision_are_compiled_anew(model: Path, root: Path) -> None:
    provider = Provider()
    ask(root, model, provider)

    assert ask(root, model, provider, "fp16") == b"onefp16"
    model.with_name("weights").write_bytes(b"two")
    assert ask(root, model, provider) == b"twofp32"
    model.with_name("weights").write_bytes(b"one")
    assert ask(root, model, provider) == b"onefp32"
    assert provider.compiled == 3


@pytest.mark.parametrize(
    "changed",
    [
        {"graph": "0" * 64},
        {"weights": {}},
        {"rows": 2},
        {"tokens": 128},
        {"options": {"device_id": "0", "migraphx_exhaustive_tune": "1"}},
        {"versions": {"onnxruntime-migraphx": "1.27.1", "migraphx": "2.16"}},
        {"processor": "gfx1100"},
        {"environment": {"MIGRAPHX_MLIR_USE_SPECIFIC_OPS": "~attention"}},
    ],
)
def test_whatever_goes_into_a_program_is_part_of_its_identity(model: Path, changed: dict[str, object]) -> None:
    assert identity_of(model, **changed).digest != identity_of(model).digest


def test_the_order_of_options_is_no_part_of_it(model: Path) -> None:
    one, other = ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})

    assert identity_of(model, options=one).digest == identity_of(model, options=other).digest


def entry_of(root: Path) -> Path:
    (found,) = (path for path in root.iterdir() if path.is_dir())
    return found


def program_of(root: Path) -> Path:
    (found,) = (entry_of(root) / PROGRAMS).iterdir()
    return found


def overwrite(path: Path, content: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(content)


@pytest.mark.parametrize("harm", ["truncated", "edited", "gone", "one more", "a link", "no entry", "entry of another"])
def test_an_entry_that_is_not_whole_is_compiled_anew(model: Path, root: Path, harm: str) -> None:
    provider = Provider()
    ask(root, model, provider)
    program = program_of(root)
    match harm:
        case "truncated":
            overwrite(program, program.read_bytes()[:-1])
        case "edited":
            overwrite(program, b"stalefp32")
        case "gone":
            program.unlink()
        case "one more":
            (program.parent / "other.mxr").write_bytes(b"stale")
        case "a link":
            program.rename(root / "elsewhere")
            program.symlink_to(root / "elsewhere")
        case "no entry":
            (entry_of(root) / ENTRY).unlink()
        case _:
            entry = entry_of(root) / ENTRY
            overwrite(entry, entry.read_bytes().replace(b"gfx942", b"gfx900"))

    assert ask(root, model, provider) == b"onefp32"
    assert provider.compiled == 2
    assert ask(root, model, provider) == b"onefp32"
    assert provider.compiled == 2


def test_a_program_that_does_not_give_the_golden_answers_is_dropped(model: Path, root: Path) -> None:
    provider = Provider()
    ask(root, model, provider)
    entry, program = entry_of(root) / ENTRY, program_of(root)
    overwrite(program, b"stalefp32")  # a compiler that was wrong: its program is whole, and not the graph's
    old = digests.sha256_of_bytes(b"onefp32").encode()
    overwrite(entry, entry.read_bytes().replace(old, digests.sha256_of_bytes(b"stalefp32").encode()))

    with pytest.raises(errors.GoldenMismatch):
        ask(root, model, provider)

    assert ask(root, model, provider) == b"onefp32"


def test_a_session_that_harms_its_copy_harms_nobody_else(model: Path, root: Path) -> None:
    provider = Provider()
    ask(root, model, provider)
    with CompileCache(root).check_out(identity_of(model)) as checkout:
        (copy,) = checkout.folder.iterdir()
        overwrite(copy, b"stale")
        checkout.is_proven = True

    assert ask(root, model, provider) == b"onefp32"
    assert provider.compiled == 1


def test_what_was_not_proven_is_not_kept(model: Path, root: Path) -> None:
    provider = Provider()
    with CompileCache(root).check_out(identity_of(model)) as checkout:
        provider.open(model, "fp32", checkout.folder)

    assert [path.suffix for path in root.iterdir()] == [".lock"]


def test_nothing_is_compiled_where_that_was_asked_for(model: Path, root: Path) -> None:
    with (
        pytest.raises(errors.CompileCacheInvalid, match="vela compile"),
        CompileCache(root).check_out(identity_of(model), must_be_warm=True),
    ):
        raise AssertionError("an empty folder was handed out")

    ask(root, model, Provider())
    with CompileCache(root).check_out(identity_of(model), must_be_warm=True) as checkout:
        assert checkout.is_warm


def test_many_processes_at_once_compile_it_once_and_all_get_it(model: Path, root: Path) -> None:
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()

    def one() -> None:
        provider = Provider(seconds=0.2)
        found.put((ask(root, model, provider), provider.compiled))

    processes = [context.Process(target=one) for _ in range(4)]
    for process in processes:
        process.start()
    results = [found.get() for _ in processes]
    for process in processes:
        process.join()

    assert [answer for answer, _ in results] == [b"onefp32"] * 4
    assert sum(compiled for _, compiled in results) == 1


CALLS = ("copy_file", "sync_folder", "write_file", "rename", "empty_folder")


@pytest.mark.parametrize("warm", [False, True])
def test_a_crash_at_any_step_leaves_a_whole_program_or_none(
    model: Path, root: Path, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    steps, status = 0, -1
    while status:
        if warm:
            ask(root, model, Provider())
            overwrite(program_of(root), b"x")  # so that it is dropped and compiled anew
        child = os.fork()
        if not child:
            _ask_and_die_at(steps, root, model, monkeypatch)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        provider = Provider()
        assert ask(root, model, provider) == b"onefp32"
        assert provider.compiled <= 1
        assert not list(root.glob(".private-*"))
        durable.empty_folder(root)
        steps += 1

    assert steps > len(CALLS)


def _ask_and_die_at(step: int, root: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [step]

    def dying(inner):
        def call(*given):
            if left[0] == 0:
                os._exit(9)
            left[0] -= 1
            return inner(*given)

        return call

    for name in CALLS:
        monkeypatch.setattr(durable, name, dying(getattr(durable, name)))
    ask(root, model, Provider())
    os._exit(0)


def test_a_crash_while_it_compiles_leaves_nothing(model: Path, root: Path) -> None:
    child = os.fork()
    if not child:
        with CompileCache(root).check_out(identity_of(model)) as checkout:
            (checkout.folder / f"{model.name}-{SHAPE}.mxr").write_bytes(b"half")
            os._exit(9)
    os.waitpid(child, 0)
    assert list(root.glob(".private-*"))  # the crash did leave a folder

    assert ask(root, model, Provider()) == b"onefp32"
    assert not list(root.glob(".private-*"))


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_open_is_refused(root: Path, mode: int) -> None:
    root.mkdir()
    root.chmod(mode)

    with pytest.raises(errors.CompileCacheInvalid, match="0700"):
        CompileCache(root)


def test_a_new_folder_is_this_users_alone(root: Path) -> None:
    CompileCache(root)

    assert stat.S_IMODE(root.stat().st_mode) == 0o700
