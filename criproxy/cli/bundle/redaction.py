"""Pure: hides secrets and names in the files of a bundle.

Hidden are the values of environment variables and annotations, whatever they are, and everything else that is a
credential by its key or by its look: passwords, tokens, keys, certificates, credentials in URLs. In doubt, something
harmless is hidden, too. The patterns take time that grows no faster than the line, whatever is in it: each begins at
one place of a run of the characters that it passes over, or passes over a bounded number of them.

A tenant can choose such a name. If it were replaced, it would be replaced throughout the bundle: in the keys of the
policy file, in the names of metrics and in lists of CPUs.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, get_args

from criproxy.devices.classes.builtin import BUILTIN as DEVICE_CLASSES
from criproxy.devices.classes.vgpu_profiles import Enforcement
from criproxy.placement.options.annotation_keys import KEYS
from criproxy.placement.policies import BUILTIN as POLICIES

_NUMBER = re.compile(r"[0-9]+(?:-[0-9]+|(?:\.[0-9]+)?(?:m|ms|s|h))")
"""Ranges of CPUs, and amounts such as 250m. A name of digits may be somebody's number."""

_OPTIONS = """
    actions adopt advertise all allocation allow annotate annotations apply as-is auto balance-balloons checkpoint class
    classes command commands components core cores count cpu cpuset crirm deny devices die distributed dram efficient
    enforce env exclusive exempt fail file from grace hbm health hide high ids images index indexes instances
    interval keep key kill-process kubelet l2cache l3cache labels level lift loads low memory mig minor models mps name
    namespaces new next nodes none normal nri numa nvml observe off operator package packed pass
    performance period permissions pin plugin plugins-registry pmem pod podresources policy preserve privileged profiles
    promote quota refuse register rename replicas report resource resources rules runtimes rw rwm samples select share
    shared sharing socket stop strip system thread timeout usage uuid values watch when-free
"""
"""Keys and values in policy files."""

_CLASSES = """
    away base batch be burst claim deadline dl-overrun fifo flags governor irq irqs interrupts l2 l3 mb min mode nice
    optional other partition partitions paths performance powersave priority qos rdt reclaim reset-on-fork resctrl rr rt
    scheduling schemata sink swap threads turbo weight
"""
"""The same of classes, and what the controls service says of them."""

_NOTICES = """
    agent bypass competing-manager config config-kept config-not-kept contradiction controls criproxy-behind daemon-down
    device-plugin-config device-plugin-silent device-plugin-version devices-failed devices-hanging devices-open
    devices-unguarded drift failure history kubelet-reserved left-running machine no-evidence no-healthy-card
    node-policy not-registered not-stored nvml over-quota page-token pod-files pods-cgroup policy-none released
    reserved-later reserved-unknown resync runtime store try try-problem unguarded unhealthy-card unlisted untold
    usage-unknown vgpu-directories withheld
"""
"""Kinds of notices."""

_TERMS = """
    about action address advertised age answer applied arguments asked at attempt available balloon balloons before
    behind build bytes calls candidates card cards cgroup change changed changes check collected collections configured
    connection connections container container-id containerd containers content controller cpus created creating crio
    criproxy criproxy-device-plugin current daemon date debt decided decision decisions desired device device-plugin
    different directory disk disks dropped empty end ended endpoint entries error errors event events evidence exit
    exited explain failed failures false fds files flight found free gc given granted grant grants guaranteed hash
    healthy held hidden hint id idle image in-flight incidents info instance invalid inventory io isolated journal json
    kept kernel keys kill kills kind kubelet-arg label lag last limit limits line lines listen loaded log loop max
    mems message method metrics milli mib mismatch misplaced missing mistake mode module moved namespace near no node
    not notice notices null object objects ok oldest omitted online open options outcome own owned owner page part parts
    path peer pending pid placed plain points pool pools preserved problem problems process processes profile
    promotions prompt protocol pseudonyms python quantity quotas ready reason reasons recorded refusals refused
    registered reload reloads repeats reply request requested requests reserved reset resident resize resizes restored
    result retries row runc running runs sandbox scrape seconds server service share-cpus shares should signal silent
    since size sizes sockets source spare start started starting state states status stored stopped stopping strict
    suspect systemd tail text time times title to-be-moved topology total totals trace tried troubles true try type uid
    uncollectable undersized unhealthy unit units unix unknown unplaced unpromoted until update updates used user
    version versions vgpu vgpus virtual wait waiting warning watched window work write written wrong yes zone
"""
"""Terms in sentences, titles of columns, keys of log lines and names of metrics."""

_GRAMMAR = """
    after again ago also an and another any are as asks be because been but by can cannot could did do does each else
    enough every fewer first for gets given gives good got had has have here how if in instead into is it its later
    leave less longer may more most must never newer nobody now of older on once one only or other others out over
    please same see several so some still takes than that the their them then there these they this those though two
    under unless up was well were what when where whether which while who whose why will with within without would
"""
"""Other frequent words in sentences."""

OWN_WORDS = frozenset(
    {*_OPTIONS.split(), *_CLASSES.split(), *_NOTICES.split(), *_TERMS.split(), *_GRAMMAR.split()}
    | {*KEYS, *POLICIES, *DEVICE_CLASSES, *get_args(Enforcement)}
)


def reveals_nothing(name: str) -> bool:
    """Whether a name is a word of criproxy's own output, a range or an amount."""
    return name in OWN_WORDS or _NUMBER.fullmatch(name) is not None


HIDDEN = "<hidden>"
_WORD = (
    r"passw|passphrase|(?<![a-z])pass(?![a-z_-])|(?<![a-z])pwd?(?![a-z])|secret|token|credential|\bauth(?![a-z])|[_.-]auth(?![a-z])|authori[sz]ation|authentication|cookie"
    r"|(?:private|api|access|client|signing|encryption|ssh|tls|shared)[-_.]?key|certificate-authority-data"
    r"|client-certificate-data|client-key-data"
)
_SECRET_KEY = re.compile(_WORD, re.IGNORECASE)
_KEY = rf"(?=[\w.-]*?(?:{_WORD}))[\w.-]+"
"""A key with one of these words in it."""
_QUOTED = r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|\\+"(?:.*?)\\+"'
_AFTER_KEY = r"\\*[\"']?\s*[:=]\s*"
_VALUES_HIDDEN = frozenset({"annotations", "env", "envs", "environ", "environment"})
"""Keys whose values are mappings with values that are hidden, or lists of pairs."""
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{1,60}-----.*?(?:-----END [A-Z0-9 ]{1,60}-----|\Z)", re.DOTALL)
_LEADING = re.compile(rf"^(?P<indent>\s*)(?P<key>(?:- )?[\"']?{_KEY}[\"']?\s*[:=])(?P<value>.*)$", re.IGNORECASE)
"""A line that begins with a secret key, as in YAML or an environment file: all that follows is its value."""
_VARIABLE = re.compile(r"^(?P<key>\s*(?:export\s+)?(?P<name>[A-Z_][A-Z0-9_]*)=)(?P<value>.*)$")
_ANY_VARIABLE = re.compile(r"^(?P<key>\s*(?:export\s+)?(?P<name>\w+)=)(?P<value>.*)$")
_UNIT_ENVIRONMENT = re.compile(r"^(?P<key>\s*Environment=)(?P<value>.*)$")
_OPTION_VARIABLES = re.compile(r"CRIPROXY_(?:DEVICE_PLUGIN_)?OPTIONS|KUBELET_(?:\w+_)?ARGS")
"""Variables with the options of a program, which are shown; secret options in them are hidden."""
_AHEAD = re.compile(
    rf"((?:\b(?:(?i:annotations)|envs?|environment)(?:{_AFTER_KEY}\\*[\"']?|\s+)|(?i:(?<![\w.-]){_KEY}){_AFTER_KEY})(?:map)?)[\[{{].*$"
)
"""A mapping or list of secrets, as JSON or as Go prints it, which may be cut: the rest of the line is hidden."""
_SECRET_FLAG = re.compile(rf"--?{_KEY}", re.IGNORECASE)
_FLAG_AT_END = re.compile(rf"(?<![\w.-])--?{_KEY}(?:=|\s)\s*\\$", re.IGNORECASE)
"""A flag whose value is in the next line."""
_Change = str | Callable[[re.Match[str]], str]


def _keep_key(found: re.Match[str]) -> str:
    return f"{found['key']}{HIDDEN}"


_LOOKS: tuple[tuple[str, _Change], ...] = (
    (r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]*", HIDDEN),  # PEM in base64
    (r"(?<![\w-])(?=[\w-]++\.[\w-]{4})(?P<key>[\w-]*?\b)eyJ[\w-]{4,}\.[\w-]{4,}(?:\.[\w-]*)*", _keep_key),
    (r"(?i)(?P<key>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}", _keep_key),
    (r"\bK10[0-9a-f]{32,}(?:::\S+)?", HIDDEN),  # of k3s
    (r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", HIDDEN),  # a bootstrap token
    (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", HIDDEN),
    (r"\b(?:gh[pousr]_|github_pat_|gl(?:pat|rt)-|xox[abeprs]-|nvapi-|sk-|hf_|npm_|dckr_pat_|AIza)[\w-]{16,}", HIDDEN),
    (r"\bAGE-SECRET-KEY-1\w+|(?<=hooks\.slack\.com/services/)\S+", HIDDEN),
    (r"(?i)(?P<key>\b(?:set-)?cookie\\*[\"']?\s*[:=]\s*).*$", _keep_key),
    (r"(?P<key>\b(?:sig|X-Amz-Signature|AccountKey)=)[^\s&\"'\\]{16,}", _keep_key),  # of a URL that gives access
    (rf"(?P<key>(?<![\w-])(?:-u\s*|--(?:proxy-)?user(?:=|\s+)))(?:{_QUOTED}|[^\s:\"']{{1,256}}:[^\s\"']+)", _keep_key),
    (r"(?i)(?P<key>\b[a-z][a-z0-9+.-]{0,30}://)[^\s/\"']+@", rf"\g<key>{HIDDEN}@"),
    (r"(annotation \S+ is invalid: )(.*)", lambda found: found[1] + re.sub(_QUOTED, HIDDEN, found[2])),
    (rf"(?P<key>\b(?:there is no pool|names balloon type) )(?:{_QUOTED}|[\"'].*)", _keep_key),
    (r"(?i)(?P<key>authori[sz]ation\\*[\"']?\s*[:=]\s*\\*[\"']?)[^\"',;}\]\\]+", _keep_key),
    (rf"(?i)(?P<key>(?<![\w.-])--?{_KEY}(?:=|\s+(?!-)))(?:{_QUOTED}|\S+)", _keep_key),
    (rf"(?i)(?P<key>(?<![\w.-])--?{_KEY}[\"']?\s*,\s*)(?:{_QUOTED}|[^\s,\]}}]+)", _keep_key),
    (rf"(?i)(?P<key>(?<![\w.-]){_KEY}\\*[\"']?\s*[:=]\s*)(?:{_QUOTED}|[^\s,;&}}\]]+)", _keep_key),
)
"""Secrets that are known by their look or by the key before them, and what replaces them."""
_INLINE = [(re.compile(pattern), change) for pattern, change in _LOOKS]


def redact_json(value: Any, depth: int = 60) -> Any:  # noqa: ANN401 - JSON
    """Return JSON values without secrets."""
    if not depth:
        return HIDDEN
    if isinstance(value, dict):
        is_secret = _SECRET_KEY.search(str(value.get("name", value.get("key", ""))))
        value = {**value, "value": HIDDEN} if is_secret and "value" in value else value
        return {redact_text(key): _redact_item(key, item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        flags = [False, *(isinstance(item, str) and _SECRET_FLAG.fullmatch(item) is not None for item in value)]
        return [HIDDEN if flag else redact_json(item, depth - 1) for flag, item in zip(flags, value, strict=False)]
    return redact_text(value) if isinstance(value, str) else value


def _redact_item(key: str, item: Any, depth: int) -> Any:  # noqa: ANN401 - JSON
    if item in (None, "", True, False):
        return item
    if key.lower() in _VALUES_HIDDEN:
        return {redact_text(name): HIDDEN for name in item} if isinstance(item, dict) else _pairs(item)
    return HIDDEN if _SECRET_KEY.search(key) else redact_json(item, depth)


def _pairs(item: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the names of an environment that is a list of pairs."""
    if not isinstance(item, list):
        return HIDDEN
    names = (each.get("key", each.get("name", "")) if isinstance(each, dict) else str(each) for each in item)
    return [f"{redact_text(name.partition('=')[0])}={HIDDEN}" for name in map(str, names)]


def redact_text(text: str, *, is_environment: bool = False) -> str:
    """Return *text*, which may be an environment file, without secrets; lines that are a part of one are left out."""
    return "\n".join(_redact_lines(_PEM.sub(HIDDEN, text).split("\n"), _ANY_VARIABLE if is_environment else _VARIABLE))


def _redact_lines(lines: list[str], variable: re.Pattern[str]) -> Iterator[str]:
    until, indent, is_list = "", -1, False  # what ends a value in several lines; the indentation of the key of a block
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if until:
            ended = not line.endswith("\\") if until == "\\" else until in line
            until = "" if ended else until
        elif indent >= 0 and (
            not line.strip() or depth > indent or (is_list and depth == indent and line.lstrip()[:2] == "- ")
        ):
            continue
        elif (found := variable.match(line)) and not _OPTION_VARIABLES.fullmatch(found["name"]):
            until = _continued(found["value"])
            yield found["key"] + (HIDDEN if found["value"] else "")
        elif found := _UNIT_ENVIRONMENT.match(line):
            until = "\\" if line.endswith("\\") else ""
            yield _keep_key(found)
        elif found := _LEADING.match(line):
            value = found["value"].strip()
            until, depth = _continued(value), len(found["indent"]) + 2 * found["key"].startswith("- ")
            indent, is_list = depth, value in ("", "|", ">", "|-", ">-", "|+", ">+")
            yield f"{found['indent']}{found['key']}{' ' if found['key'].endswith(':') else ''}{HIDDEN}"
            continue
        else:
            until = "\\" if _FLAG_AT_END.search(line) else ""
            yield _redact_line(line)
        indent = -1


def _continued(value: str) -> str:
    """Return what ends *value* if it is not complete; empty if it is."""
    if value.endswith("\\"):
        return "\\"
    return value[:1] if value[:1] in ('"', "'") and value[:1] not in value[1:] else ""


def _redact_line(line: str) -> str:
    line = _AHEAD.sub(rf"\1{HIDDEN}", line)
    for pattern, change in _INLINE:
        line = pattern.sub(change, line)
    return line


_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_TITLE = re.compile(rf"(?<![\w./-]){_PART}/{_PART}(?:/{_PART})?(?![\w/])")
_ROLES = ("namespace", "pod", "container")
_ROLE_OF = {
    **{f"{prefix}{role}{end}": role for role in _ROLES for prefix in ("", "exported_") for end in ("", "s", "_name")},
    **{f"io.kubernetes.{role}.name": role for role in _ROLES},
    "io.kubernetes.pod.namespace": "namespace",
}
"""Keys whose values are names, or titles such as NAMESPACE/POD/CONTAINER."""
_NAMED = re.compile(
    rf"\b(?:exported_)?({'|'.join(_ROLES)})(?:_name)?(=\\*\"?|\\*\"\s*:\s*\\*\")({_PART}(?:/{_PART}){{0,2}})"
)
_HOSTNAME = re.compile(r"(?<![\w-])--hostname-override(?:=|\s+)([\w.-]+)")
_NODE_FLAGS = re.compile(
    r"((?<![\w-])--(?:node-[\w-]+|hostname-override|provider-id|cluster-[\w-]+|server|advertise-address)(?:=|\s+))\S+"
)
"""Flags of the kubelet and of k3s that name the node or the cluster."""
_HOST = r"(?:(?:[A-Za-z0-9-]+\.)+[A-Za-z0-9-]+(?::\d{1,5})?|[A-Za-z0-9-]+:\d{1,5}|localhost)"
_LEADING_HOST = re.compile(rf"({_HOST})/")
_REGISTRY = re.compile(
    rf"(?<![\w./@:-])({_HOST})/[\w./*-]+(?::[\w.-]+|@sha256:[0-9a-f]+)"
    rf"|(?i:\bimages?\w*\\*[\"']?\s*[=:]\s*[\[\s]*\\*[\"']?)({_HOST})/"
)
_PUBLIC = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
"""Namespaces that every cluster has."""
_FORMAT_KEY = re.compile(r"[a-zA-Z_]+")
"""A key that is a word of the format, and no name."""


class Names:
    """Replaces names of namespaces, pods, containers, registries and the node by pseudonyms, the same in all files.

    Names of one character, of digits, and words of our own output are replaced only where a role or a title tells that
    they are names: anywhere else, they reveal nothing, and would make the files unreadable.
    """

    def __init__(self, hostname: str) -> None:
        self._pseudonyms: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        for name in (hostname, hostname.partition(".")[0]):
            self._add("node", name)

    def learn(self, value: Any, role: str = "") -> None:  # noqa: ANN401 - JSON
        """Learn the names in text and in JSON values."""
        if isinstance(value, dict):
            if isinstance(value.get("namespace"), str) and isinstance(value.get("name"), str):
                self._add("pod", value["name"])  # the metadata of a sandbox
            for key, item in value.items():
                if "image" in key.lower() and isinstance(item, str) and (found := _LEADING_HOST.match(item)):
                    self._add("registry", found[1])
                self.learn(item, _ROLE_OF.get(key.lower(), ""))
        elif isinstance(value, list):
            for item in value:
                self.learn(item, role)
        elif isinstance(value, str) and role:
            for each, name in zip(_ROLES if "/" in value else (role,), value.split("/"), strict=False):
                self._add(each, name)
        elif isinstance(value, str):
            self._learn_text(value)

    def _learn_text(self, text: str) -> None:
        for title in _TITLE.findall(text):
            if self._is_namespace(title.partition("/")[0]):
                self.learn(title, "namespace")
        for role, _, name in _NAMED.findall(text):
            self.learn(name, role)
        for found in _REGISTRY.findall(text):
            self._add("registry", "".join(found))
        for name in _HOSTNAME.findall(text):
            self._add("node", name)

    def _is_namespace(self, name: str) -> bool:
        return name in _PUBLIC or self._pseudonyms.get(name, "").startswith("namespace")

    def _add(self, role: str, name: str) -> None:
        name = name.strip("*?-")  # of a pattern in a policy file
        if name and name not in self._pseudonyms and name not in {*_PUBLIC, HIDDEN, "localhost"}:
            count = sum(each.startswith(role) for each in self._pseudonyms.values())
            self._pseudonyms[name] = role if role == "node" else f"{role}-{count + 1}"
            self._pattern = None

    def replaced(self, value: Any, role: str = "") -> Any:  # noqa: ANN401 - JSON
        """Return text or JSON values with pseudonyms, and without the values of labels."""
        if isinstance(value, dict):
            return {
                key if _FORMAT_KEY.fullmatch(key) else self.replaced(key): self._item(key, item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.replaced(item, role) for item in value]
        if not isinstance(value, str):
            return value
        if role and value in self._pseudonyms and not reveals_nothing(value):
            return self._pseudonyms[value]
        text = _TITLE.sub(self._title, _NODE_FLAGS.sub(rf"\1{HIDDEN}", value))
        text = _NAMED.sub(lambda found: found[1] + found[2] + self._parts(found[3]), text)
        return self._words.sub(lambda found: self._pseudonyms.get(found[0], found[0]), text)

    def _item(self, key: str, item: Any) -> Any:  # noqa: ANN401 - JSON
        if key.lower() == "labels" and isinstance(item, dict):
            return {self.replaced(name): HIDDEN for name in item}
        return self.replaced(item, _ROLE_OF.get(key.lower(), ""))

    def _title(self, found: re.Match[str]) -> str:
        return self._parts(found[0]) if self._is_namespace(found[0].partition("/")[0]) else found[0]

    def _parts(self, title: str) -> str:
        return "/".join(
            part if reveals_nothing(part) else self._pseudonyms.get(part, part) for part in title.split("/")
        )

    @property
    def _words(self) -> re.Pattern[str]:
        """Matches each name that is replaced wherever it stands, and names of our metrics, which stay."""
        if self._pattern is None:
            words = [
                name for name in self._pseudonyms if len(name) > 1 and not name.isdigit() and not reveals_nothing(name)
            ]
            longest = "|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)"
            own = r"criproxy_\w+|(?:namespace|pod|container|registry)-\d+"
            self._pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{own}|{longest})(?![A-Za-z0-9])")
        return self._pattern
