"""What is hidden in the files of a bundle, and what is not."""

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from criproxy.cli.bundle.redaction import HIDDEN, Names, redact_json, redact_text, reveals_nothing
from criproxy.placement.classes import options
from tests.conftest import ROOT

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
    "flag-with-its-value-in-the-next-line": "ExecStart=kubelet --client-secret \\\n  @",
    "arguments-in-json": 'started args=["--password", "@"] x',
    "arguments-in-yaml": "args: [--password, @]",
    "go-environment": 'env="[{DB_PASSWORD @} {FOO @}]" done',
    "go-annotations": "pod Annotations:map[a:@ b:@] QoS",
    "protobuf-environment": 'envs { key: "Y" value: "@" }',
    "cookie": "Cookie: a=1; b=@",
    "presigned": "GET https://s3.example/x?X-Amz-Signature=@%2Ba8Qd71yhW3Zk0pV&y=1",
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
    "google": "AIzaSyA0123456789abcdefghijklmnopqrstuvw",
    "npm": "npm_0123456789abcdefghijABCDEFGHIJ",
    "docker-hub": "dckr_pat_0123456789abcdefghij",
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
    "words": "environment of the node; an annotation [1]",
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
        pytest.param({"env": ["A=b", "c"]}, {"env": [f"A={HIDDEN}", f"c={HIDDEN}"]}, id="environment-as-pairs"),
        pytest.param({"envs": [{"key": "A", "value": "b", "more": 1}]}, {"envs": [f"A={HIDDEN}"]}, id="objects"),
        pytest.param({"annotations": "text"}, {"annotations": HIDDEN}, id="annotations-as-text"),
        pytest.param({"annotations": None, "env": ""}, {"annotations": None, "env": ""}, id="nothing-to-hide"),
        pytest.param({"password": 12345}, {"password": HIDDEN}, id="number"),
        pytest.param({"auth": {"a": 1}}, {"auth": HIDDEN}, id="object"),
        pytest.param({"token": None, "secret": False}, {"token": None, "secret": False}, id="no-secret"),
        pytest.param({"a": ["x", 1, 2.5, True, None]}, {"a": ["x", 1, 2.5, True, None]}, id="harmless"),
        pytest.param(["--v", "password=abc"], ["--v", f"password={HIDDEN}"], id="strings"),
        pytest.param(["--token", "abc", "x"], ["--token", HIDDEN, "x"], id="arguments"),
        pytest.param({"name": "DB_PASSWORD", "value": "x"}, {"name": "DB_PASSWORD", "value": HIDDEN}, id="name-value"),
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


def names_of(*titles: str) -> Names:
    """Names learned from NAMESPACE/POD/CONTAINER."""
    names = Names("worker-7.example.net")
    names.learn({"containers": [{"container": title} for title in titles]})
    return names


REPLACED = {
    "title": ("shop/web/main: gets 2", "namespace-1/pod-1/container-1: gets 2"),
    "title-of-a-pod": ("shop/web gets 2", "namespace-1/pod-1 gets 2"),
    "word": ("namespace shop may not", "namespace namespace-1 may not"),
    "part-of-a-word": ("web-config and my.web", "pod-1-config and my.pod-1"),
    "part-of-a-piece": ("website and cobweb", "website and cobweb"),
    "hostname": ("on worker-7 and worker-7.example.net", "on node and node"),
    "numbers": ("CPUs 0-3,8 of pod-1", "CPUs 0-3,8 of pod-1"),
    "path": ("/sys/fs/cgroup/x", "/sys/fs/cgroup/x"),
    "node-flag": ("kubelet --node-labels=team=blue --v=2", "kubelet --node-labels=<hidden> --v=2"),
    "metric": ("criproxy_policy_failures_total 0", "criproxy_policy_failures_total 0"),
    "kubelet": ("web_shop(uid) /kubepods.slice/pod_web", "pod-1_namespace-1(uid) /kubepods.slice/pod_pod-1"),
}


@pytest.mark.parametrize(("text", "replaced"), REPLACED.values(), ids=REPLACED)
def test_names_are_replaced(text: str, replaced: str) -> None:
    """A name has the same pseudonym everywhere, and what is no name stays."""
    assert names_of("shop/web/main").replaced(text) == replaced


@pytest.mark.parametrize(
    ("value", "text", "replaced"),
    [
        pytest.param('x{namespace="shop",pod="web"} 1', "shop web", "namespace-1 pod-1", id="metric"),
        pytest.param("created container=shop/web/main id=1", "web of shop", "pod-1 of namespace-1", id="log"),
        pytest.param({"devices": {"exempt": {"namespaces": ["blue-*", "*"]}}}, "blue-1", "namespace-1-1", id="policy"),
        pytest.param({"namespace": "shop", "name": "web"}, "web", "pod-1", id="sandbox"),
        pytest.param("pulled reg.corp:5000/team/app:1", "reg.corp:5000 is slow", "registry-1 is slow", id="registry"),
        pytest.param({"pod": "static"}, "policy: static", "policy: static", id="word-of-policy-files"),
        pytest.param({"pod": "x1"}, {"pod": "x1"}, {"pod": "pod-1"}, id="short-name"),
        pytest.param({"pod": "7"}, "7 of 8", "7 of 8", id="number"),
        pytest.param("shop shop/a/b default/a/b", "default/a/b a b", "default/pod-1/container-1 a b", id="short-title"),
        pytest.param("kubelet --hostname-override=acme-7", "on acme-7", "on node", id="node"),
        pytest.param({"image": "ghcr.io/acme/app"}, "ghcr.io/x", "registry-1/x", id="image-without-tag-in-json"),
        pytest.param("image=ghcr.io/acme/app", "ghcr.io/x", "registry-1/x", id="image-without-tag"),
        pytest.param({"resource": "nvidia.com/gpu"}, "nvidia.com/gpu", "nvidia.com/gpu", id="no-name"),
    ],
)
def test_names_are_learned(value: object, text: str, replaced: str) -> None:
    """From the places that have them by role."""
    names = Names("")
    names.learn(value)

    assert names.replaced(text) == replaced


def test_titles_of_known_namespaces_are_learned() -> None:
    """A path is no title, and the values of labels are hidden."""
    names = names_of("shop/web/main")
    names.learn("shop/old/job ended; default/ledger/x; run/lib/y")

    assert names.replaced({"pod": "old", "labels": {"app": "blue"}}) == {"pod": "pod-2", "labels": {"app": HIDDEN}}
    assert names.replaced("ledger lib") == "pod-3 lib"


labels = st.from_regex(r"[a-z]{2}[a-z0-9]{1,6}(-[a-z0-9]{1,5}){0,2}", fullmatch=True)


@given(st.lists(st.tuples(labels, labels, labels), min_size=1, max_size=6))
def test_no_name_survives(found: list[tuple[str, str, str]]) -> None:
    """In titles, and in words of their own."""
    names = names_of(*("/".join(title) for title in found))
    known = {name for title in found for name in title if names.replaced(name) != name}
    shown = names.replaced(" ".join([*("/".join(title) for title in found), *sorted(known)]))
    left = set(re.findall(r"[a-z0-9-]+", re.sub(r"(?:namespace|pod|container)-\d+", "", shown)))

    assert not left & known


def test_names_of_our_own_words_change_neither_files_nor_sentences() -> None:
    """Anybody may give pods such names; in titles with other names, these are replaced."""
    names = names_of("policy/containers/exclusive", "static/running/0-3", "shop/errors/events")
    value = {"cpus": "0-3", "events": ["running"], "policy": "static", "container": "policy/payroll/main"}
    names.learn(value)

    assert names.replaced(value) == {**value, "container": "policy/pod-4/container-4"}
    assert names.replaced("All is well: 2 containers, no errors") == "All is well: 2 containers, no errors"


def test_names_of_classes_and_problems_are_words_of_our_own() -> None:
    """A tenant may call its pod `scheduling` or `controls`."""
    models = [each for each in vars(options).values() if isinstance(each, type) and issubclass(each, BaseModel)]
    names = {field.alias or name for model in models for name, field in model.model_fields.items()}
    kinds = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs/check.md").read_text(), re.MULTILINE)

    words = {name for name in (*names, *kinds) if re.fullmatch("[a-z0-9-]+", name)}  # a pod has no other name
    assert {"scheduling", "l3", "controls"} < words
    assert not {word for word in words if not reveals_nothing(word)}
