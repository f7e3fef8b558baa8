"""Builds the page of ``--http`` and its background task."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from criproxy.api.control_socket import Command
from criproxy.api.page.access import Access
from criproxy.api.page.files import read_files
from criproxy.api.page.routes import Page
from criproxy.api.page.source import Looks
from criproxy.api.page.stream import Streams
from criproxy.node.controller import Controller
from criproxy.process.http.address import Address
from criproxy.process.log import structlog
from criproxy.process.tasks import Tasks

log = structlog.get_logger("criproxy.daemon")


async def page_of(
    controller: Controller,
    commands: Mapping[str, Command],
    address: Address | None,
    token_file: Path | None,
    tasks: Tasks,
) -> Page:
    """Return the page of a daemon; *tasks* look at the node while somebody has it open."""
    access = Access(address, token_file, log)
    tasks.forever("read the token of the page", access.watch)  # not here: a file that hangs must not stop a start
    looks = Looks(controller, commands, os.uname().nodename)
    streams = Streams(looks.take, looks.changed)
    tasks.forever("keep pages up to date", streams.run)
    return Page(commands, streams, access, await asyncio.to_thread(read_files))
