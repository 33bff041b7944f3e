"""What consumers have in common: parts of a template, what it must not have, and its text."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode

from larder.config.template import Representer, round_trip
from larder.errors import ConfigError
from larder.experiments.delivery import DeliveredVersion


def section(config: dict[str, Any], key: str, kind: type[Any], where: str) -> Any:
    """The template's own section, or a new one, as part of ``config``."""
    if config.get(key) is None:
        config[key] = kind()
    if not isinstance(config[key], kind):
        noun = "a list" if kind is list else "a mapping"
        raise refused(f"{key} must be {noun}", where, "fix the template")
    return config[key]


def refused(message: str, where: str, hint: str) -> ConfigError:
    return ConfigError("config.template", message, where=where, hint=hint)


def job_name(delivered: DeliveredVersion) -> str:
    """A name that SageMaker and Kubernetes accept, with room for 24 more characters of 63.

    A dataset's may have underscores.
    """
    name = delivered.dataset.replace("_", "-").strip("-")[:30].rstrip("-")
    return f"{name}-{delivered.version[:8]}"


_AMBIGUOUS = re.compile(
    r"(?:[-+.0-9][-+.:_0-9a-fxotz ]*|[0-9a-f]{16,}|[-+]?\.(?:inf|nan)"
    r"|y|n|yes|no|on|off|true|false|null|~|=|<<)\Z",
    re.IGNORECASE,
)


class _Representer(Representer):
    """Quotes strings that some reader would take for something else."""

    def represent_text(self, text: str) -> ScalarNode:
        # YAML 1.1 has more words and numbers than 1.2, which Determined reads: 12e4 is one in 1.2
        # only. Only double quotes escape Unicode line breaks.
        style = '"' if not text.isprintable() else "'" if _AMBIGUOUS.match(text) else None
        node: ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", text, style=style)
        return node


_Representer.add_representer(str, _Representer.represent_text)


def to_yaml(config: Mapping[str, Any], header: Iterable[str] = (), where: str = "") -> str:
    """The file's text, the same for the same template and values, after ``header`` as a comment.

    It is read again, and refused if other values come back.
    """
    text = io.StringIO()
    comment = [f"# {' '.join(line.split())}\n" for line in header]
    text.writelines([*comment, "\n"] if comment else [])
    yaml = round_trip()
    yaml.Representer = _Representer
    yaml.dump(config, text)
    try:
        read = YAML(typ="safe", pure=True).load(text.getvalue())
    except (YAMLError, ValueError):
        read = None
    if _bare(read) != _bare(config):
        message = "the config would be read with other values than the template has"
        raise refused(message, where, "write the template without anchors and merges")
    return text.getvalue()


def _bare(value: Any) -> Any:
    """The values alone, so that true is not 1, and no number is equal to one with other digits."""
    if isinstance(value, Mapping):
        return {key: _bare(each) for key, each in value.items()}
    return list(map(_bare, value)) if isinstance(value, list | tuple) else repr(value)
