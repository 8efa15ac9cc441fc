"""What is in the wheel, and under which names it is imported."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

FOLDERS = ("export", "graphs", "scripts", "serve", "verify")
# Run from a source tree and never installed: they make the samples and measure.
NOT_PACKAGED = ("scripts/samples", "scripts/bench")

IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*(name for name in ("export", "graphs", "scripts", "serve", "verify", "tests") if name in sys.modules))
"""


def is_packaged(path: Path) -> bool:
    return not any(path.is_relative_to(folder) for folder in NOT_PACKAGED)


def python_folders(root: Path) -> set[str]:
    """Name every folder with Python files, as an import name; folders that are not installed left out."""
    files = [path.relative_to(root) for folder in FOLDERS for path in (root / folder).rglob("*.py")]
    return {f"vela.{'.'.join(path.parent.parts)}" for path in files if is_packaged(path)}


def test_every_folder_with_python_files_is_a_listed_package_and_every_listed_package_is_one(
    root: Path, pyproject: dict[str, Any]
) -> None:
    listed = pyproject["tool"]["setuptools"]["packages"]

    assert python_folders(root) == set(listed)
    assert sorted(listed) == listed


def test_every_package_has_an_init_file_because_tools_disagree_on_folders_without(
    root: Path, pyproject: dict[str, Any]
) -> None:
    folders = [name.removeprefix("vela.").replace(".", "/") for name in pyproject["tool"]["setuptools"]["packages"]]

    assert [folder for folder in folders if not (root / folder / "__init__.py").is_file()] == []


def test_every_top_level_folder_is_mapped_and_linked_for_the_type_checkers(
    root: Path, pyproject: dict[str, Any]
) -> None:
    assert pyproject["tool"]["setuptools"]["package-dir"] == {f"vela.{folder}": folder for folder in FOLDERS}
    links = {path.name: path.readlink().as_posix() for path in (root / ".typing" / "vela").iterdir()}
    assert links == {folder: f"../../{folder}" for folder in FOLDERS}


def test_the_wheel_holds_what_the_source_tree_imports_and_its_package_data_and_nothing_else(
    root: Path, wheel: Path, pyproject: dict[str, Any]
) -> None:
    files = [path.relative_to(root) for folder in FOLDERS for path in (root / folder).rglob("*.py")]
    expected = {f"vela/{path.as_posix()}" for path in files if is_packaged(path)}
    for package, patterns in pyproject["tool"]["setuptools"]["package-data"].items():
        folder = root / package.removeprefix("vela.").replace(".", "/")
        found = {path for pattern in patterns for path in folder.glob(pattern)}
        assert found, f"{package} lists data that is not there: {patterns}"
        expected |= {f"vela/{path.relative_to(root).as_posix()}" for path in found}

    with zipfile.ZipFile(wheel) as archive:
        actual = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert actual == expected


def test_the_wheel_is_the_distribution_that_users_are_told_to_install(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
        scripts = archive.read(next(name for name in archive.namelist() if name.endswith("entry_points.txt"))).decode()

    assert wheel.name.startswith("vela_onnx-")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "Requires-Python: >=3.11" in metadata.splitlines()
    assert "vela = vela.scripts.cli:main" in scripts


def test_no_module_is_ever_called_export_or_serve(root: Path) -> None:
    files = [path.relative_to(root) for folder in FOLDERS for path in (root / folder).rglob("*.py")]
    names = [f"vela.{'.'.join(path.with_suffix('').parts)}" for path in files if is_packaged(path)]
    command = [sys.executable, "-c", IMPORT_ALL, *(name.removesuffix(".__init__") for name in names)]

    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_importing_the_packages_under_test_put_no_such_module_here_either() -> None:
    assert not {"export", "graphs", "serve", "verify"} & set(sys.modules)
