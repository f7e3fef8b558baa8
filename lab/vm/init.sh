#!/bin/busybox sh
# The guest's first process, in the initramfs: load modules, build the root file system, hand over to guest.sh.
#
# The root is the host's, read-only over 9p, below an overlay on tmpfs: all that is installed there is here, and what
# is written goes with the guest. Only the run directory and the share lead back to the host.
B=/bin/busybox
P9=trans=virtio,version=9p2000.L,msize=524288
RUN=run/criproxy-vm

$B mount -t devtmpfs dev /dev
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
exec >/dev/console 2>&1 </dev/null
fail() { echo "guest: $*"; $B poweroff -f; $B sleep 60; }

for module in $($B cat /modules); do
    $B insmod /m/$module.ko || echo "guest: cannot load $module"
done

# ---- root
$B mkdir -p /lower /rw /new /r
$B mount -t 9p -o $P9,cache=none vmrun /r || fail "no run directory"
. /r/settings
$B mount -t 9p -o $P9,cache=loose,ro vmroot /lower || fail "no root file system"
$B mount -t tmpfs -o size=90%,mode=755 rw /rw
$B mkdir /rw/upper /rw/work
$B mount -t overlay -o lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work overlay /new || fail "no overlay"
cd /new
$B mkdir -p proc sys dev run tmp var/lib/containerd var/lib/kubelet
$B mount -t proc -o nosuid,nodev,noexec proc proc
$B mount -t sysfs -o nosuid,nodev,noexec sys sys
$B mount -t devtmpfs -o nosuid dev dev
$B mkdir -p dev/pts dev/shm dev/mqueue
$B mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts dev/pts
$B mount -t tmpfs -o mode=1777,nosuid,nodev shm dev/shm
$B mount -t mqueue mqueue dev/mqueue
for link in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do
    [ -e dev/${link%:*} ] || $B ln -s /proc/self/${link#*:} dev/${link%:*}
done
$B mount -t bpf bpf sys/fs/bpf
$B mount -t tracefs tracefs sys/kernel/tracing

# ---- cgroup v2, with every controller
$B mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
for controller in $($B cat sys/fs/cgroup/cgroup.controllers); do
    echo +$controller >sys/fs/cgroup/cgroup.subtree_control
done

# ---- what must not lie on an overlay, or be the host's
for directory in run var/lib/containerd var/lib/kubelet; do
    $B mount -t tmpfs -o size=60%,mode=755 tmpfs $directory
done
$B mkdir -p run/lock run/tmp $RUN
$B mount --move /r $RUN

# ---- persistent memory becomes system RAM, as with ndctl create-namespace -m devdax and
#      daxctl reconfigure-device -m system-ram
for region in sys/bus/nd/devices/region*; do
    [ -d $region ] || continue
    number=${region##*region}
    nd=sys/bus/nd
    namespace=namespace$number.0
    echo $namespace >$nd/drivers/nd_pmem/unbind
    seed=$($B cat $region/dax_seed)
    device=$nd/devices/$seed
    $B cat proc/sys/kernel/random/uuid >$device/uuid
    echo ram >$device/mode
    echo 2097152 >$device/align
    echo $namespace >$device/namespace
    echo $seed >$nd/drivers/dax_pmem/bind
    for dax in sys/bus/dax/devices/dax$number.*; do
        echo ${dax##*/} >sys/bus/dax/drivers/device_dax/unbind
        echo ${dax##*/} >sys/bus/dax/drivers/kmem/new_id
    done
done

if [ -n "$SHARE" ]; then
    $B mkdir -p share
    $B mount -t 9p -o $P9,cache=mmap vmshare share || fail "cannot mount the share"
fi

$B hostname criproxy-vm
$B ip link set lo up
$B umount /proc /sys
if [ -n "$SYSTEMD" ]; then
    # The job is all that is started: nothing pulls in what a whole system has.
    $B mkdir -p /new/run/systemd/system
    $B cat >/new/run/systemd/system/criproxy-vm.service <<EOF
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/$RUN/guest.sh
TimeoutStartSec=infinity
StandardOutput=null
EOF
    exec $B switch_root /new $SYSTEMD --unit=criproxy-vm.service --show-status=no </dev/console
fi
exec $B switch_root /new /$RUN/guest.sh </dev/console
