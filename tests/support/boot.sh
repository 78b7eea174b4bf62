#!/bin/sh
# Become systemd, as the first process of a machine of its own. Usage: boot.sh UNITS ENVIRONMENT
# Run in namespaces of its own (unshare): the mounts below are seen by nobody else. No unit of this machine is loaded, for
# those would change its kernel. What systemd says goes to its console, here a file.
set -eu
units=$1
mount --make-rprivate /
touch "$units/console.log"
mount --bind "$units/console.log" /dev/console
for folder in /run /opt /var/lib /sys/fs/cgroup; do mount -t tmpfs tmpfs "$folder"; done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /run/systemd/system /opt/watchword
mount --bind "$2" /opt/watchword
mount --make-rshared /  # among its own processes: credentials come by mounts
exec env -i PATH="$PATH" container=test SYSTEMD_UNIT_PATH="$units" SYSTEMD_GENERATOR_PATH="$units/none" \
    SYSTEMD_ENVIRONMENT_GENERATOR_PATH="$units/none" \
    /lib/systemd/systemd --system --unit=test.target --log-target=console --show-status=no
