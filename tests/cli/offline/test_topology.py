"""``criproxy topology`` shows any machine: as a tree, as JSON, as a picture."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from criproxy.model.cpuset import parse_cpuset
from criproxy.model.machine.topology import CpuKind, Die, MemoryKind, NumaNode, Topology
from criproxy.simulate.hosts import GIB, machine
from tests.asking import criproxy
from tests.host.tree import plant
from tests.sysfs import write_sysfs

SVG = "{http://www.w3.org/2000/svg}"

BIG = machine(nodes=8, cores=24, threads=2, packages=2)
ONE = machine(nodes=1, cores=1, threads=1)
ODD = replace(
    machine(nodes=2, cores=2, threads=2, packages=1),
    cpus=parse_cpuset("0-6"),
    isolated_cpus=parse_cpuset("3"),
    offline_cpus=parse_cpuset("8-9"),
    dies=(Die(0, 0, parse_cpuset("0-1,4-5")), Die(0, 1, parse_cpuset("2-3,6-7"))),
    cpu_kinds=(CpuKind(parse_cpuset("3,7"), 512), CpuKind(parse_cpuset("0-2,4-6"), 1024)),
    nodes=(
        NumaNode(0, parse_cpuset("0-1,4-5"), 16 * GIB),
        NumaNode(1, parse_cpuset("2-3,6-7"), 16 * GIB),
        NumaNode(2, frozenset(), 64 * GIB, normal_memory=False, kind=MemoryKind.PMEM),
    ),
    distances=((10, 21, 17), (21, 10, 28), (17, 28, 10)),
    mems=frozenset({0, 1, 2}),
)
"""Something of everything."""

GPU = "sys/bus/pci/devices/0000:3b:00.0"
ODD_FILES = {
    f"{GPU}/class": "0x030200\n",
    f"{GPU}/vendor": "0x10de\n",
    f"{GPU}/device": "0x20b5\n",
    f"{GPU}/numa_node": "1\n",
    f"{GPU}/local_cpulist": "2-3,6-7\n",
    "sys/bus/pci/devices/0000:00:00.0/class": "0x060000\n",
    "sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages": "4\n",
    "sys/devices/system/cpu/nohz_full": "3\n",
}


def show(root: Path, topology: Topology, output: str, files: dict[str, str] | None = None) -> str:
    """Return what the command prints about a machine with further files."""
    write_sysfs(root, topology)
    plant(root, files or {})
    result = criproxy("topology", "--host-root", root, "--format", output)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_tree(tmp_path: Path) -> None:
    """It says in words what is where, and what is unlike the rest."""
    assert show(tmp_path, ODD, "table", ODD_FILES).splitlines() == [
        "1 package, 2 dies, 3 NUMA nodes, 4 cores, 8 CPUs, 96 GiB",
        "└── package 0: CPUs 0-7 (4 cores, 8 CPUs)",
        "    ├── 1 other PCI function (1 × bridge)",
        "    ├── die 0, NUMA node 0 16 GiB DRAM, L3 0: CPUs 0-1,4-5 (2 cores, 4 CPUs)",
        "    │   ├── 4 huge pages of 1 GiB, 0 free",
        "    │   └── NUMA node 2 64 GiB PMEM, movable only, no CPUs; distance 17 from node 0",
        "    └── die 1, NUMA node 1 16 GiB DRAM, L3 1: CPUs 2-3,6-7 (2 cores, 4 CPUs)",
        "        └── PCI display 0000:3b:00.0 [10de:20b5]",
        "Pods may use CPUs 0-6, memory of NUMA nodes 0-2",
        "Isolated: CPU 3",
        "Forbidden to pods: CPU 7",
        "Offline: CPUs 8-9",
        "Tickless (nohz_full): CPU 3",
        "Kind 0: CPUs 3,7, capacity 512",
        "Kind 1: CPUs 0-2,4-6, capacity 1024",
        "",
        "Distance between NUMA nodes",
        "node   0   1   2",
        "0     10  21  17",
        "1     21  10  28",
        "2     17  28  10",
        "",
        "What classes can set:",
        "Files of cgroups: unknown, since no cgroup is mounted",
        "Governors: none, since Linux does not set the frequencies of CPUs",
        "Idle states: none; uncore: no",
        "Real-time policies for containers: yes",
        "resctrl: this machine has no resctrl: its kernel lacks it, or its processor Intel RDT and AMD PQoS",
    ]


def test_json(tmp_path: Path) -> None:
    """It has every list in full, under names that do not change."""
    found = json.loads(show(tmp_path, ODD, "json", ODD_FILES))

    assert (found["online_cpus"], found["allowed_cpus"]) == (list(range(8)), list(range(7)))
    assert (found["isolated_cpus"], found["offline_cpus"], found["nohz_full_cpus"]) == ([3], [8, 9], [3])
    only_memory = {"memory_only": True, "kind": "pmem", "normal_memory": False}
    assert found["numa_nodes"][2] == {"id": 2, "cpus": [], "memory_bytes": 64 * GIB, **only_memory}
    assert [kind["capacity"] for kind in found["cpu_kinds"]] == [512, 1024]
    assert found["hugepages"] == [{"node": 0, "size_bytes": GIB, "total": 4, "free": 0}]
    numbers = {"class": "0x030200", "vendor": "0x10de", "device": "0x20b5"}
    assert found["pci"][1] == {"address": "0000:3b:00.0", **numbers, "numa_node": 1, "local_cpus": [2, 3, 6, 7]}


@pytest.mark.parametrize("topology", [ONE, ODD, BIG], ids=["1-cpu", "odd", "384-cpus"])
def test_picture(tmp_path: Path, topology: Topology) -> None:
    """It is one SVG file without references to others, and has every CPU once, offline ones included."""
    svg = ET.fromstring(show(tmp_path, topology, "svg"))  # noqa: S314 - our own output

    cells = [int(cell.text or "") for cell in svg.iter(f"{SVG}text") if cell.get("class") == "cell"]
    assert sorted(cells) == sorted(topology.online_cpus | topology.offline_cpus)
    assert not [element for element in svg.iter() if "href" in " ".join(element.attrib)]


def test_picture_lies_within_its_frame(tmp_path: Path) -> None:
    """No box sticks out of the one that it is in, and none overlaps the next."""
    svg = ET.fromstring(show(tmp_path, BIG, "svg"))  # noqa: S314 - our own output
    width, height = float(svg.get("width", 0)), float(svg.get("height", 0))
    boxes = list(rectangles(svg, 0, 0))

    assert width < 2000
    assert height < 2000
    assert all(x + w <= width and y + h <= height for x, y, w, h, _ in boxes)
    nodes = [box for box in boxes if box[4] == "node"]
    assert len(nodes) == 8 + 1  # one in the legend
    for x, y, w, h, _ in nodes:
        others = [other for other in nodes if other[:2] != (x, y)]
        assert not [o for o in others if x < o[0] + o[2] and o[0] < x + w and y < o[1] + o[3] and o[1] < y + h]


def rectangles(element: ET.Element, x: float, y: float) -> list[tuple[float, float, float, float, str]]:
    """Return x, y, width, height and class of all rectangles with a class."""
    found = []
    for child in element:
        if child.tag == f"{SVG}g":
            dx, dy = map(float, child.get("transform", "").removeprefix("translate(").removesuffix(")").split())
            found += rectangles(child, x + dx, y + dy)
        elif child.tag == f"{SVG}rect" and child.get("class"):
            found.append((x, y, float(child.get("width", 0)), float(child.get("height", 0)), child.get("class", "")))
    return found


def test_picture_marks_and_explains(tmp_path: Path) -> None:
    """CPUs that are unlike the rest look so, and the legend says what that means."""
    svg = ET.fromstring(show(tmp_path, ODD, "svg", ODD_FILES))  # noqa: S314 - our own output
    titles = {title.text for title in svg.iter(f"{SVG}title")}
    texts = {text.text for text in svg.iter(f"{SVG}text")}

    assert {"CPU 3, isolated", "CPU 7, forbidden to pods", "CPU 8, offline"} <= titles
    assert {"isolated (1)", "forbidden to pods (1)", "offline (2)", "CPU, capacity 512"} <= texts
    assert {"NUMA node 2: memory only", "64 GiB PMEM, movable only", "distance 17 from node 0"} <= texts
    assert {"display 0000:3b:00.0 [10de:20b5]", "4 huge pages of 1 GiB, 0 free"} <= texts


def test_the_processor_of_this_machine(tmp_path: Path) -> None:
    """Its name and flags follow the tree; the tree of a copy has none, since its processor is unknown."""
    here = criproxy("topology").output
    elsewhere = show(tmp_path, ONE, "table")

    processor, flags = here.splitlines()[-2:]
    assert processor.startswith("Processor: ")
    assert {"fpu", "sse2"} <= {*flags.removeprefix("Flags: ").split()} or os.uname().machine != "x86_64"
    assert "Processor: " not in elsewhere


def test_no_machine_there(tmp_path: Path) -> None:
    """A folder without /sys is an error in a sentence; a folder that is not there is wrong use."""
    empty = criproxy("topology", "--host-root", tmp_path)
    missing = criproxy("topology", "--host-root", tmp_path / "none")

    assert (empty.exit_code, missing.exit_code) == (1, 2)
    assert empty.stderr.startswith(f"Error: no CPUs found in {tmp_path}/sys/devices/system/cpu: the host root must be")


def test_real_machines(shared_dir: Path) -> None:
    """On every recorded machine, what the command prints is what hwloc and lscpu say."""
    compare = shared_dir / "topologies/compare.py"
    command = f"{sys.executable} -m criproxy topology --format json --host-root"
    memory = {"TMPDIR": "/dev/shm"} if Path("/dev/shm").is_dir() else {}  # thousands of tiny files are slow elsewhere
    done = subprocess.run(
        [sys.executable, str(compare), command],
        env={**os.environ, **memory},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["0 differ"]), done.stdout + done.stderr
