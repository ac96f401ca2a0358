"""What `--help` says is whole: a sentence for every command, and a word and an explanation for every option."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import typer
from typer.main import get_command

from see_tune.cli.app import app, main


def _commands(group: typer.core.TyperGroup, prefix: str = "") -> Iterator[tuple[str, typer.core.TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            yield from _commands(command, f"{prefix}{name} ")
        elif isinstance(command, typer.core.TyperCommand) and not command.hidden:
            yield f"{prefix}{name}", command


ROOT = get_command(app)
assert isinstance(ROOT, typer.core.TyperGroup)
COMMANDS = dict(_commands(ROOT))


@pytest.mark.parametrize("group", [[], ["datasets"]], ids=["see-tune", "datasets"])
def test_no_command_is_listed_by_half_a_sentence(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*group, "--help"]) == 0
    said = capsys.readouterr().out
    assert "..." not in said.partition("Commands:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_takes_and_what_for(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*name.split(), "--help"]) == 0
    options = capsys.readouterr().out.partition("Options:")[2]
    assert not [word for word in ("<int", "<str", "<float", "<path", "range>") if word in options]
    assert not [option.name for option in COMMANDS[name].params if not getattr(option, "help", None)]
