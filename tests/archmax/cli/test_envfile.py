from __future__ import annotations

from pathlib import Path

from archmax.cli.envfile import load_env_files, parse_env


def test_lines_are_variables_comments_or_blank():
    """07 §4: `KEY=VALUE`, `#` comments, optional quotes, optional `export`."""
    values, unreadable = parse_env(
        "\ufeff# a comment\n\nA=1\r\n export B = two words # why\n"
        'C=\'it is # kept $HOME\'\nD="a\\nb \\"q\\" \\\\ \\$x" # why\nE=\nF=#gone\nG=a#b\nH=""\nI = x=y\n'
    )
    assert values == {
        "A": "1",
        "B": "two words",
        "C": "it is # kept $HOME",
        "D": 'a\nb "q" \\ $x',
        "E": "",
        "F": "",
        "G": "a#b",
        "H": "",
        "I": "x=y",
    }
    assert unreadable == []


def test_lines_that_are_neither_are_told_by_number_and_never_by_content():
    values, unreadable = parse_env('A=1\nnonsense\n1B=2\nC=\'open\nD="a"b\n')
    assert values == {"A": "1"}
    assert unreadable == [2, 3, 4, 5]


def test_a_real_variable_beats_the_roots_file_which_beats_the_current_directorys(tmp_path: Path):
    """07 §4: keys only the latter has are kept."""
    root, current = tmp_path / "root", tmp_path / "current"
    root.mkdir()
    current.mkdir()
    (root / ".env").write_text("REAL=root\nBOTH=root\nROOT_ONLY=root\n")
    (current / ".env").write_text("REAL=current\nBOTH=current\nCURRENT_ONLY=current\n")
    environ = {"REAL": "real"}
    assert load_env_files(root, environ, current=current) == []
    assert environ == {"REAL": "real", "BOTH": "root", "ROOT_ONLY": "root", "CURRENT_ONLY": "current"}


def test_a_missing_file_is_fine_and_an_unreadable_line_is_a_warning_without_its_content(tmp_path: Path):
    (tmp_path / ".env").write_text("SECRET hunter2\n")
    environ: dict[str, str] = {}
    problems = load_env_files(tmp_path, environ, current=tmp_path)
    assert len(problems) == 1
    assert ".env:1" in problems[0]
    assert "hunter2" not in problems[0]
    assert load_env_files(tmp_path / "nowhere", environ, current=tmp_path / "nowhere") == []


def test_a_file_that_is_not_text_is_a_warning(tmp_path: Path):
    (tmp_path / ".env").write_bytes(b"A=\xff\n")
    assert "UTF-8" in load_env_files(tmp_path, {}, current=tmp_path)[0]
