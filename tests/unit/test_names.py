"""One name for one thing: classes of `larder`, `tasks` and `flows`, and their modules."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = [path for folder in ("larder", "tasks", "flows") for path in (ROOT / folder).rglob("*.py")]
NO_NOUNS = {"Given", "Made", "Done", "Side", "Standing", "Said", "Parts"}
PARALLEL = ("larder/store/*/*", "larder/experiments/consumers/*/*")
"""Modules of registries, which have the same names on purpose."""


def test_no_class_has_the_name_of_another_or_of_nothing():
    trees = (ast.walk(ast.parse(path.read_text())) for path in FILES)
    classes = [node for tree in trees for node in tree if isinstance(node, ast.ClassDef)]
    names = Counter(node.name.lstrip("_") for node in classes)
    assert not [name for name, times in names.items() if times > 1 or name in NO_NOUNS]


def test_few_modules_have_the_name_of_another():
    modules = [path for path in FILES if path.name != "__init__.py"]
    own = [path.name for path in modules if not any(map(path.relative_to(ROOT).match, PARALLEL))]
    assert len([name for name, times in Counter(own).items() if times > 1]) <= 12


def test_the_face_of_a_folder_names_only_what_is_in_it():
    for face in (path for path in FILES if path.name == "__init__.py"):
        folder = {path.stem: path for path in face.parent.iterdir()}
        code = "".join(path.read_text() for path in folder.values() if path.suffix == ".py")
        named = re.findall(r"`([a-z_]+)`", ast.get_docstring(ast.parse(face.read_text())) or "")
        assert not [name for name in named if name not in folder and f"def {name}(" not in code]
