#!/bin/sh
# Process 1 of the guest, or the only service of systemd: run the command, keep its exit status for the host, power off.
RUN=/run/criproxy-vm
. $RUN/settings
cd "$DIRECTORY" 2>/dev/null || cd /
# In the foreground: what a shell puts into the background ignores SIGINT, and so would all that the command starts.
if [ -n "$TERMINAL" ]; then
    setsid -c -w $RUN/command </dev/hvc0 >/dev/hvc0 2>&1
else
    setsid -w $RUN/command </dev/null >$RUN/stdout 2>$RUN/stderr
fi
status=$?
echo $status >$RUN/status.part && mv $RUN/status.part $RUN/status
sync
$RUN/busybox poweroff -f
$RUN/busybox sleep 60
