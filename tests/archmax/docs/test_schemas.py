from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from archmax.docs.schemas import FOLDER, SCHEMAS, schema_text
from engine.spec.yaml12 import load_yaml
from tests.support.command import REPOSITORY, archmax

EXAMPLES = REPOSITORY / "examples"


@pytest.mark.parametrize("document", SCHEMAS)
def test_the_published_schema_is_the_one_of_the_code(document: str):
    """Run `python -m archmax.docs.schemas` after changing a document's shape."""
    assert (FOLDER / f"{document}.schema.json").read_text("utf-8") == schema_text(document)


def test_no_other_file_is_published():
    assert {file.name for file in FOLDER.iterdir()} == {f"{document}.schema.json" for document in SCHEMAS}


@pytest.mark.parametrize(
    ("document", "pattern"),
    [("workflow", "*/workflows/*/workflow.yaml"), ("case", "*/workflows/*/tests/**/*.test.yaml")],
)
def test_every_document_of_the_examples_conforms(document: str, pattern: str):
    """08: an editor that is pointed at the schema marks nothing in the reference workspace."""
    validator = jsonschema.Draft202012Validator(SCHEMAS[document]())
    files = sorted(EXAMPLES.glob(pattern))
    assert files
    for file in files:
        found = [error.message for error in validator.iter_errors(load_yaml(file.read_bytes()).value)]
        assert (file.name, found) == (file.name, [])


@pytest.mark.parametrize("document", SCHEMAS)
def test_the_command_prints_the_published_schema(document: str, tmp_path: Path):
    run = archmax("schema", document, cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (0, schema_text(document), "")
