"""Words of criproxy's own output, ranges and amounts: as names of pods or namespaces, they reveal nothing.

A tenant can choose such a name. If it were replaced, it would be replaced throughout the bundle: in the keys of the
policy file, in the names of metrics and in lists of CPUs.
"""

import re

from criproxy.devices.classes.builtin import BUILTIN as DEVICE_CLASSES
from criproxy.placement.options.keys import KEYS
from criproxy.placement.policies import BUILTIN as POLICIES

_NUMBER = re.compile(r"[0-9]+(?:-[0-9]+|(?:\.[0-9]+)?(?:m|ms|s|h))")
"""Ranges of CPUs, and amounts such as 250m. A name of digits may be somebody's number."""

_OPTIONS = """
    actions adopt advertise all allocation allow annotate annotations apply as-is auto balance-balloons checkpoint class
    classes command commands components core cores count cpu cpuset crirm deny devices die distributed dram efficient
    enforce env exclusive exempt fail file from grace hami-core hbm health hide high ids images index indexes instances
    interval keep key kill-process kubelet l2cache l3cache labels level lift loads low memory mig minor models mps name
    namespaces new next nodes none normal nri numa nvidia-memory-limit nvml observe off operator package packed pass
    performance period permissions pin plugin plugins-registry pmem pod podresources policy preserve privileged profiles
    promote quota refuse register rename replicas report resource resources rules runtimes rw rwm samples select share
    shared sharing socket stop strip system thread timeout usage uuid values watch when-free
"""
"""Keys and values in policy files."""

_NOTICES = """
    bypass competing-manager config config-kept config-not-kept contradiction criproxy-behind daemon-down
    device-plugin-config device-plugin-silent device-plugin-version devices-failed devices-hanging devices-open
    devices-unguarded drift failure history kubelet-reserved left-running machine no-evidence no-healthy-card
    not-registered not-stored nvml over-quota page-token pod-files pods-cgroup policy-none released reserved-later
    reserved-unknown resync runtime store try try-problem unguarded unhealthy-card unlisted untold usage-unknown
    vgpu-directories withheld
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
    suspect systemd tail text time times title to-be-moved topology total totals trace tried true try type uid
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
    {*_OPTIONS.split(), *_NOTICES.split(), *_TERMS.split(), *_GRAMMAR.split(), *KEYS, *POLICIES, *DEVICE_CLASSES}
)


def reveals_nothing(name: str) -> bool:
    """Whether a name is a word of criproxy's own output, a range or an amount."""
    return name in OWN_WORDS or _NUMBER.fullmatch(name) is not None
