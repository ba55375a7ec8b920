#!/bin/bash
# Runs in the guest: reads the volumes of the pool on the disk, writes to them, and leaves an intent log.
# For each volume, prints the line "NAME SUM" before its writes and "after NAME SUM" after them. The pool stays imported, as
# after a crash.
set -eu
# The label says that the device is a file, so the kernel needs a file.
mkdir -p /pool && mount -t tmpfs -o size=85% tmpfs /pool
dd if=/dev/vdb of=/pool/0.img bs=1M conv=sparse status=none
truncate -s "$(blockdev --getsize64 /dev/vdb)" /pool/0.img
zpool import -f -N -o cachefile=none -d /pool tank >&2
udevadm settle 2>/dev/null || true
zpool scrub -w tank
zpool status tank >&2
zpool status tank | grep -q 'errors: No known data errors'
node() {
  for _ in $(seq 100); do
    [ -e "/dev/zvol/$1" ] && { echo "/dev/zvol/$1"; return; }
    # Without udev, there is only the kernel's own name of the device.
    for dev in /dev/zd*; do
      [ -b "$dev" ] && [ -x /lib/udev/zvol_id ] && [ "$(/lib/udev/zvol_id "$dev" 2>/dev/null)" = "$1" ] && { echo "$dev"; return; }
    done
    sleep 0.1
  done
  echo "no device of $1: $(ls /dev/zd* /dev/zvol 2>&1 | tr '\n' ' ')" >&2; exit 1
}
discard() { # device, offset, bytes
  python3 -c 'import fcntl, os, struct, sys
dev, offset, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
fcntl.ioctl(os.open(dev, os.O_RDWR), 0x1277, struct.pack("QQ", offset, length))' "$@"
}
volumes=$(zfs list -H -o name -t volume)
for v in $volumes; do echo "$v $(sha256sum < "$(node "$v")" | cut -d' ' -f1)"; done
for v in $volumes; do
  dev=$(node "$v")
  dd if=/dev/urandom of="$dev" bs=64k count=20 seek=3 conv=notrunc status=none oflag=direct
  discard "$dev" 2097152 1048576
done
zpool sync tank
# The devices stay open from here on: the last one who closes a volume ends its intent log.
fds=
for v in $volumes; do exec {fd}<> "$(node "$v")"; fds="$fds $fd"; done
# What follows is in the intent logs alone.
zpool freeze tank
for v in $volumes; do
  dev=$(node "$v")
  dd if=/dev/urandom of="$dev" bs=12288 count=5 seek=7 conv=notrunc status=none oflag=direct,sync
  dd if=/dev/urandom of="$dev" bs=1M count=1 seek=5 conv=notrunc status=none oflag=direct,sync
  discard "$dev" 3145728 262144
  dd if=/dev/urandom of="$dev" bs=4096 count=1 seek=0 conv=notrunc,fsync status=none
  echo "after $v $(sha256sum < "$dev" | cut -d' ' -f1)"
done
# As a power cut would leave it.
dd if=/pool/0.img of=/dev/vdb bs=1M status=none conv=fsync
