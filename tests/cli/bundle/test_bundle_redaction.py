"""What is hidden in the files of a bundle, and what is not."""

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.cli.bundle.patterns import HIDDEN
from criproxy.cli.bundle.redaction import redact_json, redact_text

VALUE = "s3cr3tV4lue+/x"
LINES = {
    "yaml": "  password: @",
    "yaml-of-several-words": "password: first @ last",
    "yaml-item": "- token: @",
    "yaml-block": "client_secret: |\n  first\n  @\n",
    "yaml-folded": "secret: >-\n    @\n    @\n",
    "yaml-list": "tokens:\n- @\n- @\n",
    "yaml-flow": "a: {token: @, b: 1}",
    "ini": "db_password = @",
    "pw": "pw: @",
    "pw-in-a-log-line": "call failed db_pw=@ code=3",
    "pw-as-flag": "program --db-pw @ --v=2",
    "passwd": "a: {passwd: @, b: 1}",
    "pass": "DB_PASS = @",
    "pass-in-json": 'reply={"db-pass": "@", "server": "x"}',
    "variable": "HOME_DIR=@",
    "variable-in-quotes": 'GREETING="hello @"',
    "variable-over-lines": 'GREETING="hello\n@\nend"',
    "exported-variable": "export A=@",
    "variable-that-goes-on": "A=first \\\n@",
    "unit": 'Environment="A=@" B=@',
    "unit-that-goes-on": "Environment=A=b \\\n  C=@",
    "unit-with-broken-quotes": "Environment=\"A=@ 'B=@",
    "flag": "kubelet --token=@ --v=2",
    "flag-with-a-blank": "kubelet --bootstrap-token @ --v=2",
    "flag-in-quotes": "kubelet --client-secret='@ @'",
    "options-with-a-secret": 'CRIPROXY_OPTIONS="--http :1 --auth-token @"',
    "log-line": "call failed method=Version identity_token=@ stream=3",
    "log-line-in-quotes": 'pull failed password="@ with \\" in it @" code=3',
    "bearer": "authorization: Bearer @",
    "bearer-in-a-log-line": 'request headers="accept: */*, authorization: Bearer @"',
    "basic-that-is-short": "curl -H 'Authorization: Basic @'",
    "url-with-a-signature": "GET https://x.example/f?sv=2024&sig=@%2Ba8Qd71yhW3Zk0pV%3D&se=1 failed",
    "user-option": "curl -u admin:@ https://x.example",
    "user-option-without-blank": "curl -uadmin:@ https://x.example",
    "user-option-in-quotes": 'curl --user "admin:@ @" https://x.example',
    "url": "proxy http://user:@@proxy.example:3128 is used",
    "url-without-a-user": "https://@@host/path",
    "json": 'reply={"auth": {"password": "@", "server": "x"}}',
    "json-annotations": 'request={"config": {"annotations": {"a": "@", "b": "@"}}}',
    "json-annotations-in-a-log-line": 'pod annotations={"a": "@"} namespace=shop',
    "json-environment": 'request={"envs": [{"key": "A", "value": "@"}, {"key": "B", "value": "@"}]}',
    "json-of-secrets": 'call failed credentials={"a": "@", "b": ["@"]} code=3',
    "json-of-secrets-that-is-cut": 'sent={"x": 1, "authToken": {"a": "@", "b": "@',
    "json-pairs": 'env=["A=@", "B=@"]',
    "json-in-json": 'request="{\\"annotations\\": {\\"a\\": \\"@\\"}}"',
    "json-that-is-cut": 'request={"annotations": {"a": "x", "b": {"c": "@"}, "d": "@',
    "json-that-is-cut-in-json": 'request="{\\"config\\": {\\"env\\": [{\\"key\\": \\"a\\", \\"value\\": \\"@…',
    "escaped-json-password": 'sent="{\\"password\\": \\"@\\", \\"user\\": ',
    "pem": "-----BEGIN PRIVATE KEY-----\n@\n-----END PRIVATE KEY-----\n",
    "pem-that-is-cut": "key follows\n-----BEGIN RSA PRIVATE KEY-----\n@\n",
    "pem-in-json": '{"x": "-----BEGIN CERTIFICATE-----\\n@\\n-----END CERTIFICATE-----"}',
    "kubeconfig": "    client-key-data: @\n    client-certificate-data: @",
    "unknown-pool": "a/b/c shares CPUs 4-15 of default: there is no pool '@'",
    "unknown-balloon-type": "annotation b.x/pod names balloon type '@', which does not exist; types are: a",
    "unknown-balloon-type-that-is-cut": "annotation b.x/pod names balloon type '@…, which does not exist",
    "unknown-balloon-type-in-json": '{"text": "b.x/pod names balloon type \\"@\'s\\", which does not exist"}',
    "invalid-annotation": "container a/b/c: annotation cpu.x/y is invalid: '@' is no number; valid: 1, 2",
}
LOOKS = {
    "json-web-token": "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrOHMifQ.c2lnbmF0dXJl",
    "certificate-in-base64": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUQ=",
    "bootstrap-token": "abcdef.0123456789abcdef",
    "k3s-token": "K10" + "ab12" * 16 + "::server:0123456789abcdef",
    "cloud-key": "AKIAIOSFODNN7EXAMPLE",
    "forge-token": "ghp_0123456789abcdefABCDEF",
    "hugging-face": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "nvidia": "nvapi-AbCdEfGhIjKl-MnOpQrSt_UvWxYz0123",
    "anthropic": "sk-ant-api03-AbCdEfGhIjKl_MnOpQrSt-UvWxYz0123",
}
HARMLESS = {
    "event": "2026-11-20T09:27:36.123Z  granted    shop/web/main: gets exclusive CPUs 2-3 of NUMA node 0",
    "log": '2026-11-20T09:27:36+0000 criproxy[7]: call not handled method=CreateContainer reason="no room: 3 of 4"',
    "metric": 'criproxy_calls_total{method="Version",outcome="ok"} 3',
    "policy": "policy: topology-aware\nreservedCpus: 0-1\ndevices:\n  exempt:\n    namespaces: [monitoring]",
    "options": 'CRIPROXY_OPTIONS="--http 127.0.0.1:9820 --runtime-endpoint unix:///run/crio/crio.sock"',
    "kernel": "/proc/cmdline: BOOT_IMAGE=/vmlinuz root=UUID=0-1 isolcpus=2-3 quiet",
    "json": '{"cpus": "0-3", "counts": [1, 2], "nested": {"pool": "a"}}',
    "ignored-annotation": "annotation a.b/c is ignored: namespace shop may not use c",
    "braces": "{{{ [0-3] }}} {not json}",
    "unit-option": "journalctl -u criproxy.service -u kubelet --since 10m",
    "bypass": "criproxy bypass: on; bypass=off; compass: 7; {bypass: manual}; pwm: 3",
    "pass-as-another-word": "--pass-device-specs=true; pass-through: yes; PassEnvironment=A; passes: 3",
    "units": "Id=criproxy.service\nActiveState=active\nMemoryCurrent=12345",
    "empty": "",
    "lines": "a\n\n  b\n",
}


@pytest.mark.parametrize("line", [pytest.param(line, id=name) for name, line in LINES.items()])
def test_a_secret_is_hidden(line: str) -> None:
    """Whatever stands before or after it, the value is gone, and a word says that there was one."""
    said = redact_text(line.replace("@", VALUE, 1).replace("@", VALUE) if "@@" not in line else _in_url(line, VALUE))

    assert VALUE not in said
    assert HIDDEN in said


def _in_url(line: str, secret: str) -> str:
    return line.replace("@@", f"{secret.replace('/', '')}@").replace("+", "")


@pytest.mark.parametrize("secret", [pytest.param(secret, id=name) for name, secret in LOOKS.items()])
@pytest.mark.parametrize("line", ["{}", "it says {}.", "value={}", '{{"x": "{}"}}', "a,{},b"])
def test_a_secret_is_known_by_its_look(line: str, secret: str) -> None:
    """No key is needed for it."""
    said = redact_text(line.format(secret))

    assert secret not in said
    assert HIDDEN in said


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in HARMLESS.items()])
def test_what_is_harmless_stays(text: str) -> None:
    """Who helps needs it as it is."""
    assert redact_text(text) == text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param({"annotations": {"a": "b"}}, {"annotations": {"a": HIDDEN}}, id="annotations"),
        pytest.param({"env": ["A=b", "c"]}, {"env": [f"A={HIDDEN}", HIDDEN]}, id="environment-as-pairs"),
        pytest.param(
            {"envs": [{"key": "A", "value": "b", "more": 1}]},
            {"envs": [{"key": "A", "value": HIDDEN, "more": HIDDEN}]},
            id="environment-as-objects",
        ),
        pytest.param({"annotations": "text"}, {"annotations": HIDDEN}, id="annotations-as-text"),
        pytest.param({"annotations": None, "env": ""}, {"annotations": None, "env": ""}, id="nothing-to-hide"),
        pytest.param({"password": 12345}, {"password": HIDDEN}, id="number"),
        pytest.param({"auth": {"a": 1}}, {"auth": HIDDEN}, id="object"),
        pytest.param({"token": None, "secret": False}, {"token": None, "secret": False}, id="no-secret"),
        pytest.param({"a": ["x", 1, 2.5, True, None]}, {"a": ["x", 1, 2.5, True, None]}, id="harmless"),
        pytest.param(["--token", "password=abc"], ["--token", f"password={HIDDEN}"], id="strings"),
    ],
)
def test_json(value: Any, said: Any) -> None:  # noqa: ANN401 - JSON
    """Keys stay, so that it is seen what there was."""
    assert redact_json(value) == said


def test_deep_json_is_cut() -> None:
    """It neither ends the program nor shows what is at its end."""
    value: Any = VALUE
    for _ in range(500):
        value = [value]

    assert VALUE not in json.dumps(redact_json(value))


@pytest.mark.parametrize(
    "line",
    ["{" * 30_000, '{"a":' * 6_000, "[" * 30_000, "a." * 15_000, "token" * 6_000, "token=" * 5_000, '"' * 30_000],
    ids=lambda line: line[:6],
)
def test_a_hostile_line_takes_no_time(line: str) -> None:
    """It may not hold the bundle up; pytest's own limit would."""
    assert redact_text(f"{line}\n{line}") is not None


secrets = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_~+=.-]{10,40}[A-Za-z0-9]", fullmatch=True).filter(
    lambda text: "hidden" not in text
)
words = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\"'\\{}[]"), max_size=30)


@given(secrets, st.sampled_from(sorted(LINES)), words, st.lists(st.text(max_size=60), max_size=3))
def test_no_secret_survives(secret: str, name: str, before: str, others: list[str]) -> None:
    """In a line, behind other words, between other lines, and also where it has been redacted before."""
    line = LINES[name]
    line = line.replace("@@", f"{secret}@") if "@@" in line else line.replace("@", secret)
    lone = re.match(r"\s*(?:- )?[\w.-]+\s*[:=]|export |-----", line)
    text = "\n".join([*others, line if lone else f"{before} {line}"])
    said = redact_text(text)

    assert secret not in said or any(secret in other for other in others) or secret in before
    assert secret not in redact_text(said) or secret in said


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(secrets, json_values, st.sampled_from(["annotations", "env", "password", "authToken", "client_secret", "envs"]))
def test_no_secret_survives_in_json(secret: str, around: Any, key: str) -> None:  # noqa: ANN401 - JSON
    """Below a secret key, at any depth and as any kind of value, also in a string that has JSON."""
    held = {key: {"a": secret, "b": [secret, {"c": secret}]}}
    value = {"around": around, "list": [around, held], "text": json.dumps(held), "log": f"x={json.dumps(held)} y=1"}

    assert secret not in json.dumps(redact_json(value))
    assert secret not in redact_text(f"first\nreply={json.dumps(value, ensure_ascii=False)}")


@pytest.mark.parametrize("beginning", ["x ", "x secret "])
@pytest.mark.parametrize("unit", ["-eyJaaaa", ".-u", "=-u", ".-a", "=-a", "--secret ", "env= ", '\\"', "[{", " "])
def test_the_time_grows_no_faster_than_a_line(beginning: str, unit: str) -> None:
    """What tenants write into names and messages holds up no bundle: four times the text, four times the time."""

    def cpu_s(units: int) -> float:
        text, begun_s = beginning + unit * units, time.process_time()
        redact_text(text)
        return time.process_time() - begun_s

    units = 8000 // len(unit)
    short_s = min(cpu_s(units), cpu_s(units))
    assert min(cpu_s(4 * units), cpu_s(4 * units)) < 8 * short_s + 0.05


def test_a_web_token_is_hidden_wherever_it_begins() -> None:
    """Also behind other letters and a hyphen."""
    for before in ("", "v1-", "a.b-", "k="):
        assert redact_text(f"x {before}eyJhbGciOi.eyJzdWIiOi.c2lnbmF0 y") == f"x {before}<hidden> y"
