"""Whatever a message, a help text or the README tells people to type exists: commands, flags and keys of the YAML."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.main import get_command

import see_tune
from see_tune.cli.app import app
from see_tune.spec.keys import schemas

PACKAGE = Path(see_tune.__file__).parent
PROJECT = PACKAGE.parent
FOREIGN_COMMANDS = re.compile(r"(mlflow (ui|server|models)|pip install|python|docker|optuna-dashboard|ray \w+)\b[^;`\n]*")
BLOCKS = {name for name in schemas() if any(other.startswith(f"{name}.") for other in schemas())}
PACKAGES = {"loss"}  # `loss.backward()` in a docstring is torch's
FOREIGN_FLAGS = {"--host", "--port", "--workers", "--backend-store-uri", "--artifacts-destination", "--query-gpu", "--strict"}
MISSPELT_ON_PURPOSE = {"see.n_agu"}  # the example of a misspelt key


def _texts() -> Iterator[tuple[str, str]]:
    """(where, text): every string of the package, with values put in as X, and the documents that users read."""
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
                yield f"{file.relative_to(PROJECT)}:{node.lineno}", "".join(map(str, parts))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "command":
                words = [word.value if isinstance(word, ast.Constant) else "X" for word in node.args]  # Home.command
                yield f"{file.relative_to(PROJECT)}:{node.lineno}", f"`see-tune {' '.join(map(str, words))}`" if words else ""
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{file.relative_to(PROJECT)}:{node.lineno}", node.value
    for file in (PROJECT / "README.md", *sorted((PROJECT / "search_spaces").glob("*.yaml"))):
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            yield f"{file.relative_to(PROJECT)}:{number}", line


def _commands() -> dict[str, set[str]]:
    """Command (``run``, ``datasets check``) -> its flags."""
    root = get_command(app)
    found: dict[str, set[str]] = {"": {"--version", "--help"}}

    def collect(group: typer.core.TyperGroup, prefix: str) -> None:
        for name, command in group.commands.items():
            found[f"{prefix}{name}"] = {flag for option in command.params for flag in option.opts} | {"--help"}
            if isinstance(command, typer.core.TyperGroup):
                collect(command, f"{prefix}{name} ")

    assert isinstance(root, typer.core.TyperGroup)
    collect(root, "")
    return found


COMMANDS = _commands()
TEXTS = list(_texts())


def test_every_flag_that_is_named_exists() -> None:
    known = set().union(*COMMANDS.values())

    unknown = [
        (where, flag)
        for where, text in TEXTS
        for flag in re.findall(r"(?<![\w(-])--[a-z][a-z-]*(?![\w-]*:)", FOREIGN_COMMANDS.sub("", text))
        if flag not in known | FOREIGN_FLAGS
    ]

    assert not unknown


def test_a_command_line_that_is_named_uses_flags_of_that_command() -> None:
    wrong = []
    for where, text in TEXTS:
        for line in re.findall(r"see-tune ([^`;#\n(,]*)", text):
            words = line.split()
            command = next((c for c in (" ".join(words[:2]), " ".join(words[:1])) if c in COMMANDS), None)
            flags = [word.rstrip(".,:") for word in words if word.startswith("--")]
            wrong += [(where, line) for flag in flags if flag not in COMMANDS[command or ""]]
            if command is None and re.search(r"[`\n]\s*see-tune [a-z]+", f"`see-tune {line}") and f"`see-tune {line}" in text:
                wrong.append((where, line))

    assert not wrong


def test_every_dotted_key_that_is_named_exists() -> None:
    pattern = re.compile(rf"(?<![\w./$-])((?:{'|'.join(sorted(BLOCKS - PACKAGES))})(?:\.[a-z_][a-z0-9_]*)+)(?![\w(./*-])")
    keys = schemas()

    named = [(where, key) for where, text in TEXTS for key in pattern.findall(text) if not _a_file(key)]
    unknown = [(where, key) for where, key in named if key not in keys and key not in MISSPELT_ON_PURPOSE]

    assert not unknown


def _a_file(name: str) -> bool:
    return name.rpartition(".")[2] in {"py", "yaml", "md", "html", "json", "csv", "png", "log", "db", "safetensors", "onnx"}
