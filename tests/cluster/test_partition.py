"""A host is cut off and comes back: three hosts out of network namespaces, each with a Ray node of its own, no containers."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import optuna
import pytest
import yaml
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial
from sqlalchemy.exc import SQLAlchemyError

from see_tune.addresses import stored_address
from see_tune.home import Home
from see_tune.search.storage import view_storage

ROOT = Path(__file__).parents[2]
HEAD, CUT, SPARE = ADDRESSES = {"st-head": "10.97.0.10", "st-cut": "10.97.0.11", "st-spare": "10.97.0.12"}
SWITCH = "st-switch"
TRIALS = 3
STUDY = f"""
study: partition
dataset: {{name: glyphs, classes: 80}}
model: {{embedding_dim: 12}}
train: {{epochs: 120}}
search: {{see.lambda: {{float: [0.0, 1.0]}}}}
budget: {{trials: {TRIALS}}}
pruner: {{name: none}}
validation: {{fraction: 0.4, rerank_top: 0}}
final: none
resources: {{cpus: 1, max_parallel: 2}}
"""
WATCH = """
import json, os, time, ray
ray.init("10.97.0.10:6379", log_to_driver=False, logging_level="ERROR")
while True:
    with open("alive.new", "w") as file:
        json.dump(sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]), file)
    os.replace("alive.new", "alive")
    time.sleep(0.2)
"""

pytestmark = pytest.mark.timeout(600)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Hosts:
    """Hosts with an address each on one switch that no other network is plugged into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
        self.environment = {
            **os.environ,
            **{name: value for name, value in compose["x-node-environment"].items() if name.startswith("RAY_")},
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "SEE_TUNE_HOME": str(folder / "home"),
        }
        del self.environment["RAY_AUTH_TOKEN_PATH"]
        self._started: list[subprocess.Popen[str]] = []

    def up(self) -> None:
        ip("netns", "add", SWITCH)
        ip("-n", SWITCH, "link", "add", "bridge", "type", "bridge")
        ip("-n", SWITCH, "link", "set", "bridge", "up")
        for host, address in ADDRESSES.items():
            ip("netns", "add", host)
            ip("-n", host, "link", "set", "lo", "up")
            ip("link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", host, "netns", SWITCH)
            ip("-n", SWITCH, "link", "set", host, "master", "bridge", "up")
            ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            # To nowhere: a process learns its own address by asking which way the rest of the world would be.
            ip("-n", host, "route", "add", "default", "dev", "eth0")

    def down(self) -> None:
        for process in self._started:
            with process, suppress(ProcessLookupError):  # those that ended by themselves
                os.killpg(process.pid, signal.SIGKILL)
        for host in (*ADDRESSES, SWITCH):
            pids = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=False).stdout.split()
            for pid in pids:  # Ray's processes leave the group they were started in
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", host], capture_output=True, check=False)

    def link(self, host: str, state: str) -> None:
        ip("-n", SWITCH, "link", "set", host, state)

    def start(self, host: str, *command: str) -> subprocess.Popen[str]:
        """A process on a host, with a /tmp/ray of the host's own."""
        private = self.folder / host
        private.mkdir(exist_ok=True)
        script = f'mount --bind {private} /tmp/ray && exec "$@"'
        process = subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                host,
                "unshare",
                "--mount",
                "--uts",
                "sh",
                "-c",
                f"hostname {host} && {script}",
                "sh",
                *command,
            ],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=(self.folder / f"{host}.log").open("a"),
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def node(self, host: str, *arguments: str) -> subprocess.Popen[str]:
        """A Ray node that is started again whenever it ends, as a container with a restart policy is."""
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--node-ip-address={ADDRESSES[host]}"]
        line = " ".join([*ray, "--object-store-memory=80000000", *arguments])
        return self.start(host, "sh", "-c", f"while true; do {line} > /tmp/ray/start.log 2>&1; sleep 1; done")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("hosts out of network namespaces need root and iproute2")
    Path("/tmp/ray").mkdir(exist_ok=True)
    hosts = Hosts(tmp_path)
    try:
        hosts.up()
        yield hosts
    finally:
        hosts.down()


def seconds_until(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < timeout_s, f"{what}: not within {timeout_s:.0f} s"
        time.sleep(0.2)
    return time.monotonic() - begun


def trials(home: Home) -> list[FrozenTrial]:
    """The rows of the study so far; none before its driver has made their tables."""
    folder = home.study("partition")
    address = stored_address(folder, "partition")
    if address is None:
        return []
    try:
        return optuna.load_study(study_name="partition", storage=view_storage(folder, address)).trials
    except (KeyError, SQLAlchemyError, StorageInternalError):
        return []


def test_cut_off_host_is_noticed_its_trials_go_on_elsewhere_and_it_comes_back_by_itself(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "partition.yaml").write_text(STUDY)
    home = Home(tmp_path / "home")
    hosts.node(HEAD, "--head", "--num-cpus=0", "--port=6379", "--include-dashboard=false")
    join = f"--address={ADDRESSES[HEAD]}:6379"
    hosts.node(CUT, join, "--num-cpus=2")
    see_tune = [sys.executable, "-m", "see_tune.cli.app"]
    hosts.start(HEAD, "sh", "-c", f"until {sys.executable} -c '{WATCH}'; do sleep 1; done")

    def sees(*addresses: str) -> bool:
        alive = tmp_path / "alive"
        return alive.is_file() and json.loads(alive.read_text()) == sorted(addresses)

    seconds_until(lambda: sees(ADDRESSES[HEAD], ADDRESSES[CUT]), 120, "two nodes")
    study = hosts.start(HEAD, *see_tune, "run", "partition.yaml", "--address", f"{ADDRESSES[HEAD]}:6379", "--json")
    seconds_until(lambda: sum(bool(trial.intermediate_values) for trial in trials(home)) >= 2, 180, "two trials' first epochs")
    hosts.node(SPARE, join, "--num-cpus=2")
    seconds_until(lambda: sees(*ADDRESSES.values()), 120, "the third node")

    running = {trial.user_attrs["lineage"] for trial in trials(home) if trial.state.name == "RUNNING"}
    assert running
    hosts.link(CUT, "down")
    cut_at = time.time()
    noticed_s = seconds_until(lambda: sees(ADDRESSES[HEAD], ADDRESSES[SPARE]), 60, "the death of the node that was cut off")

    def moved() -> list[FrozenTrial]:
        again = [trial for trial in trials(home) if trial.datetime_start and trial.datetime_start.timestamp() > cut_at]
        return [trial for trial in again if trial.user_attrs.get("lineage") in running]

    moved_s = seconds_until(lambda: len(moved()) == len(running), 90, "its trials, elsewhere") + noticed_s
    hosts.link(CUT, "up")
    back_s = seconds_until(lambda: sees(*ADDRESSES.values()), 120, "the node, back by itself")
    print(f"noticed after {noticed_s:.1f} s, trials elsewhere after {moved_s:.1f} s, back {back_s:.1f} s after the link")
    output, _ = study.communicate(timeout=300)

    assert study.returncode == 0
    assert json.loads(output)["complete"] == TRIALS
    finished = Counter(trial.user_attrs["lineage"] for trial in trials(home) if trial.state.name == "COMPLETE")
    assert len(finished) == TRIALS and set(finished.values()) == {1}
    assert noticed_s < 10
    assert moved_s < 20
