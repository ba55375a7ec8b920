# Furnishes the folder $1 as the root of a small system with the programs $2 in /opt (each NAME=FILE, parted by blanks). It
# stays as its first process until its input ends.
set -e
read -r pid _ </proc/self/stat
# This namespace began with all mounts of the machine. The mounts of other tests are removed from it, because their pools
# could otherwise not be exported as long as this namespace exists.
grep ' fuse.zfs ' /proc/self/mounts | cut -d ' ' -f 2 | xargs -r umount -l 2>/dev/null || true
mount -t tmpfs -o mode=755,size=8g sandbox "$1"
cd "$1"
mkdir dev etc mnt opt proc run tmp usr v var
for name in bin sbin lib lib64; do
    if [ -L "/$name" ]; then
        cp -P "/$name" .
    elif [ -d "/$name" ]; then
        mkdir "$name"
        mount -o bind,ro "/$name" "$name"
    fi
done
mount -o bind,ro /usr usr
mount -t proc proc proc
for name in null zero full random urandom fuse; do
    touch "dev/$name"
    mount --bind "/dev/$name" "dev/$name"
done
cp -a /etc/ld.so.* /etc/alternatives etc/
# The accounts of the machine on which the transcripts were recorded.
printf 'root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbob:x:1001:1000::/:/bin/sh\n' >etc/passwd
printf 'root:x:0:\nstaff:x:1000:\n' >etc/group
printf 'passwd: files\ngroup: files\n' >etc/nsswitch.conf
for pair in $2; do
    touch "opt/${pair%%=*}"
    mount --bind "${pair#*=}" "opt/${pair%%=*}"
done
# bash reaps ended processes, as the first process of a namespace must. Processes that enter the namespace find this root
# from now on.
exec chroot . bash -c 'echo "ready $0"; while read -r line; do :; done' "$pid"
