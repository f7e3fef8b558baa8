#!/bin/sh
# Makes a small node out of this machine, in namespaces of its own, and starts systemd in it as process 1.
#   boot.sh enter CGROUP SHARED SOURCE PYTHON LIBRARIES HOME     as root, from tests/systemd/booted.py
# Everything of the machine is read-only, or a copy; SHARED alone is writable, as /run/shared. Units come from
# SHARED/units, from /etc/systemd/system, which is empty, and from packages that are installed in the node. HOME is where
# the node has what tests need; where it is not /opt/criproxy, packages can be installed.
set -eu
step=$1 cgroup=$2 shared=$3 source=$4 python=$5 libraries=$6 home=$7
shift

case $step in
enter)
    # /proc/net/unix has the sockets of a network namespace: without its own, a node would see a kubelet on the socket of
    # another node that is up. systemd brings the loopback interface up.
    exec unshare --mount --net --pid --fork --uts --ipc --propagation private --kill-child "$0" join "$@"
    ;;
join)
    # The groups that this process is in become the roots of its cgroup namespace; nobody else may be in them.
    for top in $(sed -nE 's/^[^ ]+ ([^ ]+) cgroup2? .*/\1/p' /proc/self/mounts); do
        mkdir "$top/$cgroup"
        for file in cpuset.cpus cpuset.mems; do # empty in a new group of version 1
            [ ! -e "$top/$cgroup/$file" ] || [ -e "$top/cgroup.controllers" ] || cat "$top/$file" >"$top/$cgroup/$file"
        done
        echo 0 >"$top/$cgroup/cgroup.procs"
    done
    exec unshare --cgroup "$0" boot "$@"
    ;;
esac

mount -t proc proc /proc
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys

# systemd changes what it is given: mount points, their options, device nodes. All of that is made anew here.
# What the cgroup namespace calls the root becomes the top of each tree.
trees=$(sed -nE 's/^[^ ]+ ([^ ]+) (cgroup2?) ([^ ]+) .*/\1 \2 \3/p' /proc/self/mounts)
mount --bind /sys /sys
mount -o remount,bind,ro /sys
case $trees in
*' cgroup '*) mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup ;;
esac
echo "$trees" | while read -r point type options; do
    [ -d "$point" ] || mkdir "$point"
    case $type:$options in
    cgroup2:*) mount -t cgroup2 cgroup2 "$point" ;;
    *name=*) mount -t cgroup -o "none,name=${options##*name=}" cgroup "$point" ;;
    *) mount -t cgroup -o "${options##*,}" cgroup "$point" ;;
    esac
done
mkdir "$shared/dev"
mount -t tmpfs -o mode=755 tmpfs "$shared/dev"
for device in null zero full random urandom tty; do
    cp -a "/dev/$device" "$shared/dev/"
done
mknod "$shared/dev/nvidia0" c 195 0 # a card's node, without a driver
mkdir "$shared/dev/pts" "$shared/dev/shm"
mount --move "$shared/dev" /dev
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /dev/pts
ln -s pts/ptmx /dev/ptmx
rmdir "$shared/dev"

# Held open under a name that the new /tmp does not hide.
exec 3<"$shared" 4<"$source" 5<"$python" 6<"$libraries" 7</var/lib/dpkg
for point in /run /opt /var/lib; do
    mount -t tmpfs -o mode=755 tmpfs "$point"
done
copied() { # PLACE FROM: what is written at PLACE is lost with the node
    mkdir -p "/run/copied$1/upper" "/run/copied$1/work" "$1"
    mount -t overlay -o "lowerdir=$2,upperdir=/run/copied$1/upper,workdir=/run/copied$1/work" overlay "$1"
}
copied /etc /etc
if [ "$home" != /opt/criproxy ]; then
    copied /var/lib/dpkg /proc/self/fd/7
    copied /usr /usr
    mount -t tmpfs -o mode=755 tmpfs /usr/lib/systemd/system # without the machine's units
fi
mkdir -p /run/shared /run/lock "$home/bin" "$home/source" "$home/python" "$home/libraries"
mount --bind /proc/self/fd/3 /run/shared
mount --bind /proc/self/fd/4 "$home/source"
mount --bind /proc/self/fd/5 "$home/python"
mount --bind /proc/self/fd/6 "$home/libraries"
exec 3<&- 4<&- 5<&- 6<&- 7<&-
for point in /tmp /var/tmp; do
    mount -t tmpfs tmpfs "$point"
done
mount -t tmpfs -o mode=755 tmpfs /etc/systemd/system
cp /run/shared/bin/* "$home/bin"
mount -o remount,bind,ro /
mount --make-rshared / # as systemd does on a machine; in a container it leaves that, and units get no credentials

unset NOTIFY_SOCKET LISTEN_FDS LISTEN_PID
export container=criproxy-test SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/shared/units
[ "$home" = /opt/criproxy ] || SYSTEMD_UNIT_PATH=$SYSTEMD_UNIT_PATH:/usr/lib/systemd/system
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec /lib/systemd/systemd --system --unit=node.target --log-target=null --show-status=no
