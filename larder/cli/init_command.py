"""``larder init``: writes a configs folder with the bundled examples."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from shlex import quote

from larder.cli.arguments import add_json, parser
from larder.cli.output import print_json, print_text
from larder.config.urls import directory
from larder.disk import disk_errors, read_file, write_file
from larder.errors import ConfigError
from larder.units import format_count, format_names

FOLDER = "configs"
"""The folder of configuration for the other commands, relative to the current directory."""

EXAMPLES = (
    "clusters/aws-us-west-2.yaml",
    "clusters/croissant.yaml",
    "clusters/kubernetes.yaml",
    "clusters/local.yaml",
    "clusters/sagemaker.yaml",
    "clusters/slurm.yaml",
    "datasets/digits.yaml",
    "datasets/files.yaml",
    "datasets/imagenet-folders.yaml",
    "datasets/imagenet.yaml",
    "experiments/default.yaml",
    "experiments/digits.yaml",
    "experiments/kubeflow/default.yaml",
    "experiments/kubernetes/default.yaml",
    "experiments/resnet50.yaml",
    "experiments/sagemaker/default.yaml",
    "experiments/slurm/default.sh",
    "schema/cluster.json",
    "schema/dataset.json",
)
"""The bundled files below ``configs``; in a checkout, the user's own files are next to them.
pyproject.toml lists them too."""

_NAMED = 5
_DESCRIPTION = """\
Write a configs folder with the bundled examples: dataset files, cluster files, experiment templates
and the schemas with which editors check them. Existing files are left alone; if one differs from
its example, nothing is written.\
"""


def main(arguments: Sequence[str] | None = None, prog: str = "larder init") -> int:
    flags = parser(prog, _DESCRIPTION)
    add = flags.add_argument
    add(
        "dir",
        metavar="DIR",
        nargs="?",
        type=Path,
        default=Path(),
        help="where to write configs/ (default: .)",
    )
    add("--force", action="store_true", help="replace files that differ")
    add_json(flags)
    namespace = flags.parse_args(arguments)
    base = directory(namespace.dir, "DIR")
    folder = base / FOLDER
    written, kept = write_examples(folder, force=namespace.force)
    if namespace.json:
        print_json({"configs": str(folder), "written": written, "kept": kept})
    else:
        print_text("\n".join(_lines(base, folder, written, kept)))
    return 0


def examples() -> dict[str, bytes]:
    """Read the bundled files by their paths below ``configs``, sorted."""
    # In a checkout this is a link to configs/; the wheel contains the files.
    folder = files("larder.cli") / "examples"
    return {name: folder.joinpath(*name.split("/")).read_bytes() for name in EXAMPLES}


def write_examples(folder: Path, *, force: bool = False) -> tuple[list[str], list[str]]:
    """Write the examples that are missing in ``folder``; with ``force``, also those that differ.

    Returns the paths, below ``folder``, of written examples and of examples that existed already.
    Without ``force``, a file that differs is refused with ``config.path`` before any write.
    """
    shipped = examples()
    current = {name: _read(folder / name) for name in shipped}
    differing = [name for name in shipped if current[name] not in (None, shipped[name])]
    if differing and not force:
        message = f"{format_names(differing, _NAMED)}: not as in the examples; nothing was written"
        hint = "move that away, or replace it with --force"
        raise ConfigError("config.path", message, where=str(folder), hint=hint)
    wanted = {name: data for name, data in shipped.items() if current[name] != data}
    for name, data in wanted.items():
        write_file(folder / name, data)
    return list(wanted), [name for name in shipped if name not in wanted]


def _read(path: Path) -> bytes | None:
    with disk_errors(path, reading=True):
        try:
            return read_file(path)
        except FileNotFoundError:
            return None


def _lines(base: Path, folder: Path, written: Sequence[str], kept: Sequence[str]) -> list[str]:
    done = f"wrote {format_count(len(written), 'file')} to {folder}"
    lines = [f"{done}; {len(kept):,} already existed" if kept else done]
    lines.append("next:")
    if base != Path():
        lines.append(f"  cd {quote(str(base))}")
    return [
        *lines,
        "  larder prepare --dataset files --set source.url=/some/directory --plan",
        "  the same without --plan prepares that directory, or a bucket: s3://bucket/prefix",
        f"  to describe your own dataset, copy {FOLDER}/datasets/files.yaml to a new name",
    ]
