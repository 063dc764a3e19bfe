"""The recipes of `examples/deployment`: commands that covey takes, nothing as root, and everything that is written on a volume."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from covey.cli.main import commands

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "deployment"
STATE = "/var/lib/covey"
UNITS = ["covey-coordinator.service", "covey-silo.service"]


def parsed(words: list[str]) -> dict[str, Any]:
    """The values of a covey command's options; refused as covey would, but nothing is run."""
    command: Any = commands()
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    with command.make_context(command.name, list(words)) as context:
        return dict(context.params)


def check_party(words: list[str], writable: list[str], readable: list[str]) -> None:
    """What a party writes lies where it may write, and its samples where it may not."""
    values = parsed(words)
    folders = ["keys", "out"] if words[0] == "serve" else ["folder", "state"]
    assert all(any(str(values[name]).startswith(root) for root in writable) for name in folders), values
    if words[0] == "join":
        assert str(values["data"]) in readable and values["superlink"].endswith(":9092")
    else:
        assert values["address"] == "0.0.0.0:9092"


def unit(name: str) -> dict[str, str]:
    reader = configparser.RawConfigParser(strict=True, interpolation=None)
    reader.optionxform = str  # type: ignore[assignment,method-assign]
    reader.read_string((FOLDER / name).read_text())
    return dict(reader["Service"])


@pytest.mark.parametrize("name", UNITS)
def test_units(name: str) -> None:
    service = unit(name)
    program, *words = shlex.split(service["ExecStart"])
    assert program == "/opt/covey/bin/covey"
    check_party(words, [f"/var/lib/{service['StateDirectory']}"], service.get("ReadOnlyPaths", "").split())
    assert service["User"] not in ("", "root", "0") and service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "true" and service["CapabilityBoundingSet"] == ""
    assert service["RestartPreventExitStatus"] == "2"  # of what covey says in a sentence (`cli/main.py`)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_the_units(name: str, tmp_path: Path) -> None:
    """With a program that is there: it looks for that, too."""
    (tmp_path / name).write_text((FOLDER / name).read_text().replace("/opt/covey/bin/covey", "/bin/true"))
    answer = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in answer.stderr.splitlines() if name in line]
    assert not complaints, complaints


def test_compose() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    assert set(services) == {"coordinator", "silo"}
    for service in services.values():
        volumes = [volume.split(":") for volume in service["volumes"]]
        readable = [inside for _, inside, *mode in volumes if mode == ["ro"]]
        check_party(service["command"], [inside for _, inside, *mode in volumes if not mode], readable)
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
        assert not service["user"].startswith("0") and service["security_opt"] == ["no-new-privileges:true"]
        assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_kubernetes() -> None:
    objects = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    sets = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "StatefulSet"}
    assert set(sets) == {"covey-coordinator", "covey-silo"}
    for spec in sets.values():
        pod = spec["template"]["spec"]
        assert spec["replicas"] == 1 and pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] > 0
        claimed = {one["metadata"]["name"] for one in spec["volumeClaimTemplates"]}
        for container in (*pod["initContainers"], *pod["containers"]):
            locked = container["securityContext"]
            assert locked["readOnlyRootFilesystem"] is True and locked["allowPrivilegeEscalation"] is False
            assert locked["capabilities"] == {"drop": ["ALL"]}
            known = claimed | {one["name"] for one in pod["volumes"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= known
        (party,) = pod["containers"]
        mounts = party["volumeMounts"]
        readable = [one["mountPath"] for one in mounts if one.get("readOnly")]
        check_party(party["args"], [one["mountPath"] for one in mounts if one["name"] in claimed], readable)
        waits = pod["initContainers"][0]["command"][-1]
        assert f"{party['args'][2] if party['args'][0] == 'serve' else party['args'][1]}/party.bin" in waits
    (service,) = (one["spec"] for one in objects if one["kind"] == "Service")
    labels = sets["covey-coordinator"]["template"]["metadata"]["labels"]
    assert service["selector"] == labels and service["ports"][0]["port"] == 9092


def test_container() -> None:
    lines = [line.split(maxsplit=1) for line in (FOLDER / "Dockerfile").read_text().splitlines() if line.strip()]
    words = {key: rest for key, rest in lines if key.isupper()}
    assert words["USER"] == "10001:10001" and words["ENTRYPOINT"] == '["covey"]'
    copied = {name for key, rest in lines if key == "COPY" for name in rest.split()[:-1]}
    assert all((FOLDER.parents[1] / name).exists() for name in copied)


def test_the_proxy_passes_tls_through() -> None:
    text = (FOLDER / "nginx.conf").read_text()
    directives = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    assert "stream {" in directives and "ssl_preread on" in directives and "ssl_certificate" not in directives


PAGES = ["from_laptop_to_hospitals.md", "keys.md", "operating.md", "README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_pages(page: str) -> None:
    """In blocks and in tables; not what stands for anything (…, NAME)."""
    text = (FOLDER.parents[1] / "docs" / "deployment" / page).read_text()
    shown = re.findall(r"^(?: {4,7})?(covey .+)$", text, re.MULTILINE) + re.findall(r"`(covey [^`]+ [^`]+)`", text)
    commands = {line.partition("  #")[0].strip() for line in shown if "…" not in line and "COMMAND" not in line}
    assert len(commands) > 3
    for command in sorted(commands):
        if len(words := shlex.split(command)[1:]) > 2 or words[0] not in ("keys", "data"):
            parsed(words)
