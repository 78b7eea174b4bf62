#!/bin/sh
# What a container engine would do with the image, without one: a root of its own that cannot be written, one volume, one
# user without any right, a network of its own. Usage: contain.sh NEWROOT ENVIRONMENT DATA UID GID COMMAND…
# Run in namespaces of its own (unshare). The network is on, and COMMAND is given the environment as it stands. MORE_GROUPS are
# more groups of the user; MOUNTS are more folders to read, a line each: FOLDER:PLACE.
set -eu
root=$1 environment=$2 data=$3 user=$4 group=$5
shift 5
mount --make-rprivate /
ip link set lo up
mount -t tmpfs tmpfs "$root"
mkdir -p "$root/usr" "$root/etc" "$root/dev" "$root/proc" "$root/tmp" "$root/opt/watchword" "$root/data"
for name in bin lib lib64 sbin; do if [ -e "/$name" ]; then ln -s "usr/$name" "$root/$name"; fi; done
for folder in usr etc dev; do mount --rbind "/$folder" "$root/$folder"; done
for folder in usr etc; do mount -o remount,bind,ro "$root/$folder"; done
mount --bind "$environment" "$root/opt/watchword"
mount -o remount,bind,ro "$root/opt/watchword"
mount --bind "$data" "$root/data"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
for pair in ${MOUNTS-}; do
    mkdir -p "$root${pair#*:}"
    mount --bind "${pair%%:*}" "$root${pair#*:}"
    mount -o remount,bind,ro "$root${pair#*:}"
done
mount -o remount,ro "$root"
cd "$root"
if [ -n "${MORE_GROUPS-}" ]; then groups="--groups $MORE_GROUPS"; else groups=--clear-groups; fi
# shellcheck disable=SC2086 # two words
exec chroot "$root" setpriv --reuid "$user" --regid "$group" $groups --no-new-privs --bounding-set=-all \
    --inh-caps=-all -- "$@"
