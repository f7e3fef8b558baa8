"""Pure: replaces the names of namespaces, pods, containers and the node by pseudonyms, the same in the whole bundle.

Names are learned from the places where the files have them by role, and then replaced wherever they occur as a word or
as a part of one: the word ``web-config`` contains the name ``web``. Names that are only digits or one character would
occur everywhere; they are replaced in their own places and in NAMESPACE/POD/CONTAINER. Names that reveal nothing stay:
see `vocabulary`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from criproxy.cli.bundle.patterns import HIDDEN
from criproxy.cli.bundle.vocabulary import OWN_WORDS, reveals_nothing

PUBLIC = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
"""Namespaces that every cluster has."""
_ROLES = {
    "namespace": "namespace",
    "pod_namespace": "namespace",
    "io.kubernetes.pod.namespace": "namespace",
    "exported_namespace": "namespace",
    "pod": "pod",
    "pod_name": "pod",
    "io.kubernetes.pod.name": "pod",
    "exported_pod": "pod",
    "container": "container",
    "containers": "container",
    "container_name": "container",
    "io.kubernetes.container.name": "container",
    "exported_container": "container",
}
"""Keys in JSON, in metrics and in the log whose values are names, or titles such as NAMESPACE/POD/CONTAINER."""
_TITLE_ROLES = ("namespace", "pod", "container")
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_TITLE = re.compile(rf"(?<![\w./-]){_PART}/{_PART}(?:/{_PART})?(?![\w/])")
_FULL_TITLE = re.compile(rf"{_PART}/{_PART}(?:/{_PART})?")
_NAMED = re.compile(
    rf"(?<![\w.-])({'|'.join(map(re.escape, _ROLES))})(=\\*\"?|\\*\"\s*:\s*\\*\")({_PART}(?:/{_PART}){{0,2}})"
)
_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_WORD_OR_METRIC = re.compile(rf"criproxy_\w+|{_WORD.pattern}")
_SOME_WORD = re.compile(r"[^\W_]{2}")
_SEPARATOR = re.compile(r"([.-])")
_MOST_PIECES = 12
"""The most pieces of a word that may be one name."""
_FORMAT_KEY = re.compile(r"[a-zA-Z_]+")
"""A key that is a word of the format, and no name."""
_BEGIN, _END, _ZERO = "\ue000", "\ue001", 0xE010
_MARK = re.compile("\ue000([\ue010-\ue019]+)\ue001")
_PRIVATE = re.compile("[\ue000-\ue019]")
"""A name that has been replaced is a number in these characters, until all are, so that it is not taken for a name."""


class Names:
    """The names that are known so far."""

    def __init__(self, hostname: str = "") -> None:
        self._pseudonyms: dict[str, str] = {}
        self._marks: dict[str, str] = {}
        """By name; as many as there are pseudonyms."""
        self._by_number: list[str] = []
        self._counts = Counter[str]()
        self._namespaces: set[str] = set(PUBLIC)
        self._words: dict[str, str] = {}
        self._odd: list[str] = []
        """Names that are no words; Kubernetes has none."""
        for name in dict.fromkeys((hostname, hostname.partition(".")[0])):
            if name and name != "localhost" and not reveals_nothing(name):
                self._add(name, "node")

    @property
    def known(self) -> frozenset[str]:
        """All names that are replaced."""
        return frozenset(self._pseudonyms)

    def learn(self, role: str, name: str) -> None:
        """Give *name* a pseudonym, unless it has one; *role*: ``namespace``, ``pod`` or ``container``."""
        if not _WORD.fullmatch(name) and not _SOME_WORD.search(name):
            return  # such as *
        if role == "namespace":
            self._namespaces.add(name)
        if name in self._pseudonyms or name in PUBLIC or name == HIDDEN:
            return
        if not reveals_nothing(name):
            self._counts[role] += 1
            self._add(name, f"{role}-{self._counts[role]}")

    def _add(self, name: str, pseudonym: str) -> None:
        number = "".join(chr(_ZERO + int(digit)) for digit in str(len(self._by_number)))
        self._by_number.append(pseudonym)
        self._pseudonyms[name], self._marks[name] = pseudonym, f"{_BEGIN}{number}{_END}"
        self._words.clear()
        if not _WORD.fullmatch(name):
            self._odd = sorted([*self._odd, name], key=len, reverse=True)

    def learn_json(self, value: Any, role: str = "") -> None:  # noqa: ANN401 - JSON
        """Learn the names in JSON values."""
        if isinstance(value, dict):
            if isinstance(value.get("namespace"), str) and isinstance(value.get("name"), str):
                self.learn("pod", value["name"])  # the metadata of a sandbox
            for key, item in value.items():
                self.learn_json(item, _ROLES.get(key.lower(), ""))
        elif isinstance(value, list):
            for item in value:
                self.learn_json(item, role)
        elif isinstance(value, str):
            self._learn_string(value, role)

    def _learn_string(self, value: str, role: str) -> None:
        if role and _FULL_TITLE.fullmatch(value):
            self._learn_title(value)
        elif role:
            self.learn(role, value)
        else:
            self.learn_text(value)

    def learn_text(self, text: str) -> None:
        """Learn the names in text, such as the log and metrics."""
        for key, _, value in _NAMED.findall(text):
            self._learn_string(value, _ROLES[key])

    def learn_policy(self, value: Any, *, is_namespace: bool = False) -> None:  # noqa: ANN401 - YAML
        """Learn the namespaces in a policy file, which may be patterns."""
        if isinstance(value, dict):
            for key, item in value.items():
                self.learn_policy(item, is_namespace="namespace" in str(key).lower())
        elif isinstance(value, list):
            for item in value:
                self.learn_policy(item, is_namespace=is_namespace)
        elif isinstance(value, str) and is_namespace:
            self.learn("namespace", value.strip("*?-"))

    def learn_titles(self, text: str) -> None:
        """Learn the names in all NAMESPACE/POD/CONTAINER of namespaces that are known."""
        for title in _TITLE.findall(text):
            if title.partition("/")[0] in self._namespaces:
                self._learn_title(title)

    def _learn_title(self, title: str) -> None:
        for role, name in zip(_TITLE_ROLES, title.split("/"), strict=False):
            self.learn(role, name)

    def replaced_json(self, value: Any, role: str = "") -> Any:  # noqa: ANN401 - JSON
        """Return JSON values with pseudonyms, and without the values of labels."""
        if isinstance(value, dict):
            return {self._key(key): self._item(key, item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.replaced_json(item, role) for item in value]
        if isinstance(value, str):
            return self._pseudonyms[value] if role and value in self._pseudonyms else self.replaced(value)
        return value

    def _key(self, key: str) -> str:
        return key if _FORMAT_KEY.fullmatch(key) else self.replaced(key)

    def _item(self, key: str, item: Any) -> Any:  # noqa: ANN401 - JSON
        if key.lower() == "labels" and isinstance(item, dict):
            return {self.replaced(name): HIDDEN for name in item}
        return self.replaced_json(item, _ROLES.get(key.lower(), ""))

    def replaced(self, text: str) -> str:
        """Return *text* with pseudonyms."""
        text = _PRIVATE.sub("?", text)
        for name in self._odd:
            text = text.replace(name, self._marks[name])
        text = _TITLE.sub(self._title, text)
        text = _NAMED.sub(self._named, text)
        text = _WORD_OR_METRIC.sub(lambda found: self._word(found[0]), text)
        return _MARK.sub(lambda found: self._by_number[_number(found[1])], text)

    def _title(self, found: re.Match[str]) -> str:
        """Replace a title, also with names that are too short to be replaced elsewhere."""
        parts = found[0].split("/")
        if parts[0] not in self._namespaces:
            return found[0]
        return "/".join(self._marks.get(part, part) for part in parts)

    def _named(self, found: re.Match[str]) -> str:
        return found[1] + found[2] + "/".join(self._marks.get(part, part) for part in found[3].split("/"))

    def _word(self, word: str) -> str:
        if word in OWN_WORDS or word.startswith("criproxy_"):
            return word
        done = self._words.get(word)
        if done is None:
            done = self._words[word] = "".join(self._pieces(_SEPARATOR.split(word)))
        return done

    def _pieces(self, pieces: list[str]) -> Iterator[str]:
        """Replace the names that are made of some of the *pieces* of a word, the longest ones first."""
        place = 0
        while place < len(pieces):
            ends = range(min(len(pieces), place + 2 * _MOST_PIECES), place, -1)
            names = (("".join(pieces[place:end]), end) for end in ends)
            found, end = next(((self._marks[name], end) for name, end in names if self._is_name(name)), ("", 0))
            yield found or pieces[place]
            place = end or place + 1

    def _is_name(self, text: str) -> bool:
        """Whether *text* is a name that is replaced wherever it occurs."""
        return text in self._marks and len(text) > 1 and not text.isdigit()


def _number(digits: str) -> int:
    return int("".join(str(ord(digit) - _ZERO) for digit in digits))
