"""One text says which configuration a node was left with, and what a release without a daemon has made of that."""

import pytest

from criproxy.model.node import LastConfiguration

DIGEST = "0123abcd"


@pytest.mark.parametrize(
    ("text", "left", "keeps"),
    [
        pytest.param("", LastConfiguration(), {""}, id="nothing-is-known"),
        pytest.param(DIGEST, LastConfiguration(DIGEST), {DIGEST}, id="a-policy-file"),
        pytest.param("unknown", LastConfiguration("unknown"), {"", DIGEST}, id="released-after-a-loss"),
        pytest.param("undone", LastConfiguration("", is_undone=True), set(), id="undone-without-a-file"),
        pytest.param(f"undone{DIGEST}", LastConfiguration(DIGEST, is_undone=True), set(), id="undone"),
        pytest.param("undoneunknown", LastConfiguration("unknown", is_undone=True), set(), id="undone-after-a-loss"),
    ],
)
def test_what_a_text_says(text: str, left: LastConfiguration, keeps: set[str]) -> None:
    """These are the texts in the databases of nodes; and under which configurations a release goes on."""
    assert (LastConfiguration.parse(text), left.format()) == (left, text)
    assert {digest for digest in ("", DIGEST, "another") if left.keeps_release(digest)} - {"another"} == keeps
    assert left.keeps_release("another") is (text == "unknown")


@pytest.mark.parametrize(
    ("text", "then"),
    [
        pytest.param("", "unknown", id="nothing-is-known"),
        pytest.param(DIGEST, DIGEST, id="a-policy-file"),
        pytest.param(f"undone{DIGEST}", DIGEST, id="that-an-earlier-release-was-undone-is-over"),
        pytest.param("undone", "unknown", id="undone-without-a-file"),
        pytest.param("unknown", "unknown", id="released-after-a-loss"),
    ],
)
def test_a_release_for_which_no_file_is_read(text: str, then: str) -> None:
    """It is one of the node's configuration; of an unknown one it goes on under any."""
    assert LastConfiguration.parse(text).digest_of_release == then
