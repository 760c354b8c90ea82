"""The real command in processes of its own; each start costs, so a test asks more than one thing."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from archmax.cli.completion import SCRIPTS
from archmax.cli.help import command_help, program_help
from archmax.cli.table import COMMANDS
from tests.support.command import REPOSITORY, archmax, command_environment, write_workflows


def test_no_command_shows_the_help_on_stderr_and_says_that_one_is_required(tmp_path: Path):
    """07 §3."""
    run = archmax(cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(program_help())
    assert "a command is required" in run.stderr.splitlines()[-1]


def test_help_is_on_stdout_and_nothing_else_is_anywhere(tmp_path: Path):
    """07 §9: four spellings; §5: no header."""
    (tmp_path / ".env").write_text("broken line\n")
    spellings = {
        ("help",): program_help(),
        ("--help",): program_help(),
        ("help", "decide"): command_help(next(c for c in COMMANDS if c.name == "decide")),
        ("decide", "--help", "--bogus"): command_help(next(c for c in COMMANDS if c.name == "decide")),
    }
    for argv, text in spellings.items():
        run = archmax(*argv, cwd=tmp_path)
        assert (run.returncode, run.stdout, run.stderr) == (0, text, ""), argv


def test_the_version_is_one_line_on_stdout_and_nothing_else_is_anywhere(tmp_path: Path):
    (tmp_path / ".env").write_text("broken line\n")
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    run = archmax("--version", cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"{declared['name']} {declared['version']}\n", "")
    assert "--version" in program_help()


def test_help_names_every_argument_and_option_of_its_command():
    """07 §9: generated from the command table."""
    for command in COMMANDS:
        text = command_help(command)
        for name in [
            *(a.name for a in command.arguments),
            *(o.name for o in command.options),
            "--root",
            "--help",
        ]:
            assert name in text
        assert command.name in program_help()


def test_help_imports_neither_the_engine_nor_anything_heavy(tmp_path: Path):
    """`archmax help` answers at once because it loads next to nothing."""
    script = (
        "import sys; from archmax.cli.main import main; main(['help']); "
        "heavy = {'asyncio', 'pydantic', 'langchain_core', 'celery', 'engine', 'storage', 'worker', 'api'}; "
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=command_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_a_reader_that_goes_away_is_no_failure_worth_a_traceback(tmp_path: Path):
    read_end = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m archmax help | head -c 1; echo ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        env=command_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Traceback" not in read_end.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_knows_every_command_and_option(shell: str):
    script = SCRIPTS[shell]()
    assert ("-l version" if shell == "fish" else "--version") in script
    for command in COMMANDS:
        assert command.name in script
        for option in command.options:
            assert (option.key if shell == "fish" else option.name) in script


def test_bash_completes_commands_options_choices_and_slugs_and_runs_nothing_it_finds(tmp_path: Path):
    """A directory may be called anything; its name is never expanded by the shell."""
    write_workflows(tmp_path, "shop", "mail", "$(touch pwned)", "a b")
    (tmp_path / "completion.bash").write_text(SCRIPTS["bash"]())
    probe = """
        source ./completion.bash
        try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _archmax; echo "${COMPREPLY[*]}"; }
        try archmax dec
        try archmax --v
        try archmax run ''
        try archmax decide s1 --c
        try archmax graph --format s
        try archmax sessions --workflow m
        try archmax run --trigger ''
    """
    run = subprocess.run(["bash", "-c", probe], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert run.stdout.split("\n") == ["decide", "--version", "mail shop", "--comment", "svg", "mail", "", ""]
    assert not (tmp_path / "pwned").exists()


def require_shell(name: str) -> None:
    if shutil.which(name) is None:
        told = f"{name} is missing (Debian: apt-get install {name})"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)


def test_zsh_completes_the_same(tmp_path: Path):
    """In a shell of its own, on a pseudo-terminal: zsh completes nowhere else."""
    require_shell("zsh")
    write_workflows(tmp_path, "shop", "mail")
    (tmp_path / "_archmax").write_text(SCRIPTS["zsh"]())
    (tmp_path / "setup.zsh").write_text(
        "PS1='' RPS1=''\nautoload -Uz compinit\ncompinit -u -D\nsource ./_archmax\n"
        "tell() { zle complete-word; print -r -- \"[$BUFFER]\" >> told; BUFFER='' }\n"
        "zle -N tell\nbindkey '^T' tell\n"
    )
    lines = {
        "archmax dec": "archmax decide ",
        "archmax --v": "archmax --version ",
        "archmax run ma": "archmax run mail ",
        "archmax decide s1 --c": "archmax decide s1 --comment ",
        "archmax graph --format s": "archmax graph --format svg ",
        "archmax sessions --workflow m": "archmax sessions --workflow mail ",
        "archmax help va": "archmax help validate ",
        "archmax completion f": "archmax completion fish ",
    }
    typed = "source ./setup.zsh\n" + "".join(f"{line}\x14" for line in lines) + "exit\n"
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["zsh", "-f", "-i"],
        cwd=tmp_path,
        env=command_environment({"TERM": "xterm"}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as shell:
        os.close(theirs)
        os.write(ours, typed.encode())
        with contextlib.suppress(OSError):  # Linux says so when the shell is gone
            while os.read(ours, 65536):
                pass
        assert shell.wait(60) == 0
    os.close(ours)
    told = (tmp_path / "told").read_text().splitlines()
    assert dict(zip(lines, told, strict=True)) == {line: f"[{done}]" for line, done in lines.items()}


def test_fish_completes_the_same(tmp_path: Path):
    require_shell("fish")
    write_workflows(tmp_path, "shop", "mail", "$(touch pwned)")
    (tmp_path / "archmax.fish").write_text(SCRIPTS["fish"]())
    probe = """
        source ./archmax.fish
        for line in "archmax dec" "archmax --v" "archmax run ma" "archmax decide s1 --c" "archmax graph --format s" \
                    "archmax sessions --workflow m" "archmax help va" "archmax completion f"
            echo (complete -C $line | string replace -r '\\t.*' '' | string join ' ')
        end
    """
    run = subprocess.run(
        ["fish", "--no-config", "-c", probe],
        cwd=tmp_path,
        env=command_environment({"HOME": str(tmp_path)}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines() == [
        "decide",
        "--version",
        "mail",
        "--comment",
        "svg",
        "mail",
        "validate",
        "fish",
    ]
    assert not (tmp_path / "pwned").exists()
