"""Pure: how secrets look in a line of text.

The patterns take time that grows no faster than the line, whatever is in it: each begins at one place of a run of the
characters that it passes over, or passes over a bounded number of them.
"""

import re
from collections.abc import Callable

HIDDEN = "<hidden>"

_WORD = (
    r"passw|passphrase|(?<![a-z])pass(?![a-z_-])|(?<![a-z])pwd?(?![a-z])|secret|token|credential|\bauth(?![a-z])|[_.-]auth(?![a-z])|authori[sz]ation|authentication|cookie"
    r"|(?:private|api|access|client|signing|encryption|ssh|tls|shared)[-_.]?key|certificate-authority-data"
    r"|client-certificate-data|client-key-data"
)
SECRET_KEY = re.compile(_WORD, re.IGNORECASE)
_KEY = rf"(?=[\w.-]*?(?:{_WORD}))[\w.-]+"
"""A key with one of these words in it."""
_QUOTED = r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|\\+"(?:.*?)\\+"'

LEADING = re.compile(rf"^(?P<indent>\s*)(?P<key>(?:- )?[\"']?{_KEY}[\"']?\s*[:=])(?P<value>.*)$", re.IGNORECASE)
"""A line that begins with a secret key, as in YAML or an environment file: all that follows is its value."""
VARIABLE = re.compile(r"^(?P<key>\s*(?:export\s+)?(?P<name>[A-Z_][A-Z0-9_]*)=)(?P<value>.*)$")
"""A variable with its value, which stands alone in a line."""
ANY_VARIABLE = re.compile(r"^(?P<key>\s*(?:export\s+)?(?P<name>\w+)=)(?P<value>.*)$")
"""The same in a file that has nothing else."""
UNIT_ENVIRONMENT = re.compile(r"^(?P<key>\s*Environment=)(?P<value>.*)$")
_PLAIN_KEY = r"\b(?:annotations|envs?|environment)"
_AFTER_KEY = r"\\*[\"']?\s*[:=]\s*"
_MAPPING_AHEAD = re.compile(rf"({_PLAIN_KEY}{_AFTER_KEY})[\[{{].*$")
_SECRETS_AHEAD = re.compile(rf"((?<![\w.-]){_KEY}{_AFTER_KEY})[\[{{].*$", re.IGNORECASE)
MAPPING_BEFORE = re.compile(rf"{_PLAIN_KEY}{_AFTER_KEY}$")
"""The text before the value of annotations or of an environment."""
SECRETS_BEFORE = re.compile(rf"(?<![\w.-]){_KEY}{_AFTER_KEY}$", re.IGNORECASE)
"""The text before a mapping or list of secrets."""
OPTION_VARIABLES = frozenset(
    {
        "CRIPROXY_OPTIONS",
        "CRIPROXY_DEVICE_PLUGIN_OPTIONS",
        "KUBELET_ARGS",
        "KUBELET_CONFIG_ARGS",
        "KUBELET_EXTRA_ARGS",
        "KUBELET_KUBEADM_ARGS",
        "KUBELET_KUBECONFIG_ARGS",
    }
)
"""Variables with the options of a program, which are shown; secret options in them are hidden."""

PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{1,60}-----.*?(?:-----END [A-Z0-9 ]{1,60}-----|\Z)", re.DOTALL)

_Change = str | Callable[[re.Match[str]], str]


def _keep_key(found: re.Match[str]) -> str:
    return f"{found['key']}{HIDDEN}"


def _keep_reason(found: re.Match[str]) -> str:
    return found[1] + re.sub(_QUOTED, HIDDEN, found[2])


_USER_OPTION = re.compile(
    rf"(?P<key>(?<![\w-])(?:-u\s*|--(?:proxy-)?user(?:=|\s+)))(?:{_QUOTED}|[^\s:\"']{{1,256}}:[^\s\"']+)"
)
"""Name and password as `curl` takes them."""
_WEB_TOKEN = re.compile(r"(?<![\w-])(?=[\w-]++\.[\w-]{4})(?P<key>[\w-]*?\b)eyJ[\w-]{4,}\.[\w-]{4,}(?:\.[\w-]*)*")
"""A JSON web token, which may follow other letters after a hyphen."""
_FROM_ANNOTATION = re.compile(rf"(?P<key>\b(?:there is no pool|names balloon type) )(?:{_QUOTED}|[\"'].*)")
"""The value of an annotation in sentences of policies."""
_BY_LOOK: tuple[tuple[re.Pattern[str], _Change], ...] = (
    (re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]*"), HIDDEN),  # PEM in base64
    (_WEB_TOKEN, _keep_key),
    (re.compile(r"(?P<key>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE), _keep_key),
    (re.compile(r"\bK10[0-9a-f]{32,}(?:::\S+)?"), HIDDEN),  # of k3s
    (re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"), HIDDEN),  # a bootstrap token
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), HIDDEN),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|nvapi-|sk-)[\w-]{16,}"), HIDDEN),
    (re.compile(r"\bhf_[A-Za-z0-9]{16,}"), HIDDEN),  # of Hugging Face
    (re.compile(r"(?P<key>\bsig=)[^\s&\"'\\]{16,}"), _keep_key),  # of a URL that gives access
    (_USER_OPTION, _keep_key),
    (re.compile(r"(?P<key>\b[a-z][a-z0-9+.-]{0,30}://)[^\s/\"']+@", re.IGNORECASE), rf"\g<key>{HIDDEN}@"),
    (re.compile(r"(annotation \S+ is invalid: )(.*)"), _keep_reason),
    (_FROM_ANNOTATION, _keep_key),
)
"""Secrets that can be told by their look, and what replaces them."""
_BY_KEY = (
    re.compile(r"(?P<key>authori[sz]ation\\*[\"']?\s*[:=]\s*\\*[\"']?)[^\"',;}\]\\]+", re.IGNORECASE),
    re.compile(rf"(?P<key>(?<![\w.-])--?{_KEY}(?:=|\s+(?!-)))(?:{_QUOTED}|\S+)", re.IGNORECASE),
    re.compile(rf"(?P<key>(?<![\w.-]){_KEY}\\*[\"']?\s*[:=]\s*)(?:{_QUOTED}|[^\s,;&}}\]]+)", re.IGNORECASE),
)
"""Secrets that can be told by the key before them."""


def hide_inline(text: str) -> str:
    """Return a line without the secrets that can be told by their look or by the key before them."""
    for pattern, change in _BY_LOOK:
        text = pattern.sub(change, text)
    if SECRET_KEY.search(text):
        for pattern in _BY_KEY:
            text = pattern.sub(_keep_key, text)
    return text


def hide_ahead(text: str) -> str:
    """Return a line without JSON that cannot be read and that may hold secrets: a message that the log has cut."""
    text = _MAPPING_AHEAD.sub(rf"\1{HIDDEN}", text)
    return _SECRETS_AHEAD.sub(rf"\1{HIDDEN}", text) if SECRET_KEY.search(text) else text
