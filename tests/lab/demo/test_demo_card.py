"""The made-up card of the demo."""

import json
import os
import stat
from pathlib import Path

import pytest

from criproxy.config.load import load
from criproxy.host.cards import find_cards
from lab.demo import card as demo_card
from lab.demo.card import CARD, HOST, create_card


def test_the_card_is_found_and_removed(tmp_path: Path) -> None:
    """The policy file describes it, below / as below the folder that stands for it, and its node is harmless."""
    with create_card(tmp_path) as card:
        assert card is not None
        policy = tmp_path / "policy.yaml"
        policy.write_text("policy: none\n" + card.policy(tmp_path / HOST))
        policy.chmod(0o644)
        devices = load(policy, "node").common.devices
        assert devices is not None
        classes = devices.rules().classes
        for root in (Path("/"), tmp_path / HOST):
            assert [each.nodes for each in find_cards(classes, root)["demo"].cards] == [(str(card.node),)]
        found = card.node.stat()
        assert stat.S_ISCHR(found.st_mode)
        assert found.st_rdev == os.makedev(1, 3)

    assert not card.node.parent.exists()


def test_a_link_where_no_node_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not make nodes has a link to one."""

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "mknod", refuse)
    with create_card(tmp_path) as card:
        assert card is not None
        assert card.node.readlink() == Path("/dev/null")


def test_no_card_where_nothing_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose /dev nobody may write to has none."""
    monkeypatch.setattr(demo_card, "_PARENTS", (str(tmp_path / "missing"),))

    with create_card(tmp_path) as card:
        assert card is None


def test_what_processes_use(tmp_path: Path) -> None:
    """The file is a reading with the total of the card."""
    with create_card(tmp_path) as card:
        assert card is not None
        card.use({7: 100, 8: 200})

    reading = json.loads((tmp_path / HOST / "usage.json").read_text())
    assert {each["pid"]: each["memory_mib"] for each in reading["processes"]} == {7: 100, 8: 200}
    assert [(each["card"], each["memory_mib"]) for each in reading["cards"]] == [(CARD, 300)]
