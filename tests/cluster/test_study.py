"""A study on the composed cluster while its parts die, are cut off, and come back."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cluster.conftest import Stack

pytestmark = pytest.mark.timeout(2100)

TRIALS = 12
# Long enough that some trials are left when the head dies, also on a machine with nothing else to do.
SMALL = ("dataset.classes=80", "train.epochs=60", "validation.rerank_top=0", "final.seeds=1", "pruner.name=none")


def finished(stack: Stack) -> Counter[str]:
    """Lineages of the search that are finished, and how often."""
    rows = stack.rows(
        "SELECT a.value_json FROM trials t JOIN studies s USING (study_id) "
        "JOIN trial_user_attributes a ON a.trial_id = t.trial_id AND a.key = 'lineage' "
        "WHERE t.state IN ('COMPLETE', 'PRUNED') AND s.study_name NOT LIKE '%/final'"
    )
    return Counter(row[0].strip('"') for row in rows)


def champion(stack: Stack) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{stack.mlflow}/api/2.0/mlflow/registered-models/alias?name=see-tune.glyphs&alias=champion",
        headers=stack.login(),
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        found: dict[str, Any] = json.load(response)["model_version"]
        return found


def test_study_survives_its_workers_its_servers_and_its_head(stack: Stack) -> None:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    submitted = stack.see_tune(
        "submit", "search_spaces/glyphs.yaml", "--trials", str(TRIALS), *settings, "--address", stack.address
    )
    assert submitted.returncode == 0, submitted.stderr
    assert "as job glyphs-1" in submitted.stdout
    again = stack.see_tune("submit", "search_spaces/glyphs.yaml", "--address", stack.address)
    assert (again.returncode, "runs on" in again.stderr) == (2, True)

    stack.wait_for(lambda: sum(finished(stack).values()) >= 1, 300, "the first trial")
    stack.crash(stack.container("worker", 1))
    count = sum(finished(stack).values())
    stack.wait_for(lambda: sum(finished(stack).values()) > count, 180, "a trial after a worker's death")
    stack.wait_for(lambda: stack.health(stack.container("worker", 1)) == "healthy", 180, "the worker that died, back by itself")

    network = f"{stack.project}_default"
    stack.run("docker", "network", "disconnect", network, stack.container("worker", 2))
    stack.run("sleep", "30")
    stack.run("docker", "network", "connect", network, stack.container("worker", 2))

    stack.compose("restart", "--timeout", "5", "mlflow", "postgres")
    count = sum(finished(stack).values())
    stack.wait_for(lambda: sum(finished(stack).values()) > count, 300, "a trial after the servers' restart")
    before = finished(stack)
    assert len(before) < TRIALS - 1

    stack.crash(stack.container("head"))
    stack.wait_for(lambda: sum(finished(stack).values()) > sum(before.values()), 400, "a trial after the head's death")
    log = stack.see_tune("logs", "glyphs", "--follow", "--address", stack.address, timeout_s=900)

    assert log.returncode == 0, log.stderr
    found = finished(stack)
    assert len(found) == TRIALS and set(found.values()) == {1}
    assert before.keys() <= found.keys()
    result = stack.summary("glyphs")
    assert (result["status"], result["trials"], result["failed"], result["undelivered"]) == ("done", TRIALS, 0, 0)
    assert champion(stack)["name"] == "see-tune.glyphs"
    status = stack.see_tune("status", "glyphs", "--address", stack.address, "--json")
    assert json.loads(status.stdout)["state"] == "done"
    assert stack.in_service("head", "sh", "-c", "ls /studies/orders") == ""


def test_study_that_is_stopped_from_outside_is_owed_no_more(stack: Stack) -> None:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    stack.see_tune("submit", "search_spaces/glyphs.yaml", "--name", "stopped", *settings, "--address", stack.address)
    stack.wait_for(lambda: "stopped" in stack.in_service("head", "ls", "/studies/orders"), 120, "the order")
    stack.wait_for(lambda: bool(stack.rows("SELECT 1 FROM studies WHERE study_name LIKE 'stopped%'")), 180, "the study's start")

    stopped = stack.see_tune("stop", "stopped", "--address", stack.address, timeout_s=240)

    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert "has stopped; it continues with: see-tune submit" in stopped.stdout
    assert "stopped" not in stack.in_service("head", "ls", "/studies/orders")
