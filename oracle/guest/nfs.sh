# oracle/guest/nfs.sh PORT : the kernel's NFS client uses a file system that cenote serves on the host
#
# The script runs in oracle/vm with --net. The client mounts tank/fs and uses it as the basic, general and special groups
# of the Connectathon tests do. Modules of the client are in /dir/modules, in order of dependence. If programs of the
# Connectathon suite are in /dir/cthon, they run, too. The line "KILL" on standard output asks the host to kill the server
# and to start it again.
set -eu
port=$1
for module in $(cat /dir/order); do insmod "/dir/modules/$module" 2> /dev/null || true; done
busybox ifconfig lo 127.0.0.1 up
busybox ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
options=vers=3,nolock,proto=tcp,mountproto=tcp,port=$port,mountport=$port,mountvers=3,addr=10.0.2.2,timeo=50,retrans=10
mkdir -p /nfs /again
mount -i -t nfs -o "$options" 10.0.2.2:/tank/fs /nfs
echo "mounted"

cat > /tmp/use.py <<'PY'
import errno, hashlib, mmap, os, random, stat, sys
os.chdir('/nfs'); os.umask(0o022)

def fails(number, what, *arguments):
    try: what(*arguments)
    except OSError as error: assert error.errno == number, (what, arguments, error)
    else: raise AssertionError(('no error', what, arguments))

def basic():
    # Tree, removal, attributes, contents, listing, links, renames, symbolic links, statfs.
    for d in range(3):
        for e in range(2):
            os.makedirs(f'tree/d{d}/e{e}')
            for n in range(5): open(f'tree/d{d}/e{e}/f{n}', 'w').write(f'{d}{e}{n}')
    assert sum(len(files) for _, _, files in os.walk('tree')) == 30
    assert open('tree/d2/e1/f4').read() == '214'
    fails(errno.ENOTEMPTY, os.rmdir, 'tree/d0')
    for top, folders, files in os.walk('tree', topdown=False):
        for name in files: os.unlink(f'{top}/{name}')
        for name in folders: os.rmdir(f'{top}/{name}')
    os.rmdir('tree')
    open('attributes', 'w').close()
    for mode in (0, 0o644, 0o4711, 0o1777): os.chmod('attributes', mode); assert stat.S_IMODE(os.stat('attributes').st_mode) == mode
    os.chown('attributes', 1001, 1002); assert (os.stat('attributes').st_uid, os.stat('attributes').st_gid) == (1001, 1002)
    os.utime('attributes', ns=(123456789, 2_000_000_000_123456789)); assert os.stat('attributes').st_mtime_ns == 2_000_000_000_123456789
    os.truncate('attributes', 1 << 33); assert os.stat('attributes').st_size == 1 << 33; os.truncate('attributes', 5)
    os.mkdir('many')
    for n in range(400): open(f'many/{n:050}', 'x').close()
    assert sorted(os.listdir('many')) == [f'{n:050}' for n in range(400)]
    with os.scandir('many') as entries:
        # Each name is listed once although names are removed meanwhile.
        seen = [(entry.name, os.unlink(f'many/{entry.name}')) for entry in entries]
    assert len({name for name, _ in seen}) == len(seen) == 400 and os.listdir('many') == []
    open('one', 'w').write('one'); os.link('one', 'two'); assert os.stat('two').st_nlink == 2
    os.rename('two', 'many/three'); os.unlink('one'); assert open('many/three').read() == 'one' and os.stat('many/three').st_nlink == 1
    open('other', 'w').write('other'); os.rename('other', 'many/three'); assert open('many/three').read() == 'other'
    os.symlink('many/three', 'symbolic'); assert os.readlink('symbolic') == 'many/three' and open('symbolic').read() == 'other'
    fails(errno.EEXIST, os.mkdir, 'many'); fails(errno.ENOENT, os.stat, 'none'); fails(errno.ENAMETOOLONG, os.stat, 'x' * 256)
    os.mkfifo('fifo'); assert stat.S_ISFIFO(os.stat('fifo').st_mode)
    os.mknod('device', stat.S_IFCHR | 0o600, os.makedev(1, 3)); assert os.stat('device').st_rdev == os.makedev(1, 3)
    space = os.statvfs('.'); assert 0 < space.f_bavail <= space.f_blocks

def special():
    # A file that is removed while it is open can still be used.
    file = open('removed', 'w+b'); file.write(b'a' * 5000); os.unlink('removed'); file.seek(0); assert file.read() == b'a' * 5000; file.close()
    fd = os.open('written', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o444); os.write(fd, b'by its owner'); os.close(fd)
    fails(errno.EEXIST, os.open, 'written', os.O_RDWR | os.O_CREAT | os.O_EXCL)
    fd = os.open('holes', os.O_RDWR | os.O_CREAT); os.pwrite(fd, b'end', 10 << 20); os.fsync(fd)
    assert os.pread(fd, 4, (10 << 20) - 1) == b'\0end'[:4] and os.stat('holes').st_blocks * 512 < 1 << 20; os.close(fd)
    fd = os.open('appended', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for n in range(50): os.write(fd, b'%03d' % n)
    os.close(fd); assert open('appended', 'rb').read() == b''.join(b'%03d' % n for n in range(50))
    os.mkdir('a'); os.mkdir('a/b'); fails(errno.EINVAL, os.rename, 'a', 'a/b/c')

def users():
    # Root of a client is root here (no_root_squash); others have the rights that modes give them.
    os.mkdir('home', 0o755); os.chown('home', 1001, 1001)
    open('secret', 'w').write('s'); os.chmod('secret', 0o600)
    open('shared', 'w').write('s'); os.chown('shared', 0, 1100); os.chmod('shared', 0o640)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([1100]); os.setgid(1001); os.setuid(1001)
            fails(errno.EACCES, open, 'secret'); assert open('shared').read() == 's'
            fails(errno.EACCES, open, 'shared', 'a'); fails(errno.EACCES, open, 'new', 'w')
            fails(errno.EPERM, os.chmod, 'shared', 0o666); fails(errno.EPERM, os.mknod, 'home/device', stat.S_IFBLK | 0o666, 0x800)
            open('home/mine', 'w').write('m'); os.chmod('home/mine', 0o400); assert open('home/mine').read() == 'm'
            fails(errno.EPERM, os.chown, 'home/mine', 0, 0)
            os._exit(0)
        except BaseException as error:
            print('as a user:', error, file=sys.stderr); os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    fails(errno.ENOENT, os.stat, 'new'); assert os.stat('home/mine').st_uid == 1001

def model(seed, count):
    # Random reads, writes, truncations and mappings of one file, compared with a model in memory.
    dice, wanted = random.Random(seed), bytearray()
    fd = os.open(f'model{seed}', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for number in range(count):
        kind, at, length = dice.choice('wwrrtmsd'), dice.randrange(400_000), dice.randrange(1, 100_000)
        if kind == 'w':
            data = dice.randbytes(length); os.pwrite(fd, data, at)
            wanted.extend(bytes(max(0, at - len(wanted)))); wanted[at:at + length] = data
        elif kind == 'r':
            assert os.pread(fd, length, at) == wanted[at:at + length], (number, at, length)
        elif kind == 't':
            size = dice.randrange(500_000); os.ftruncate(fd, size)
            wanted = wanted[:size] + bytes(max(0, size - len(wanted)))
        elif kind == 'm' and at + length < len(wanted):
            with mmap.mmap(fd, len(wanted)) as mapped: mapped[at:at + length] = data = dice.randbytes(length); mapped.flush()
            wanted[at:at + length] = data
        elif kind == 's': os.fsync(fd)
        elif kind == 'd':
            os.fsync(fd); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            assert os.pread(fd, 1 << 20, 0) == wanted, number
    os.fsync(fd); os.close(fd)

for group in (basic, special, users): group(); print(group.__name__, flush=True)
model(1, 600); print('model', flush=True)
PY
python3 /tmp/use.py

# The suite itself: each program in the suite's order and with its arguments. What it leaves is removed, and that must work, too.
cthon() { # GROUP PROGRAM ARGUMENT…
  local group=$1 name=$2
  shift 2
  [ -x "/dir/cthon/$group/$name" ] || { echo "cthon $group/$name: not in this folder"; return 0; }
  if TMPDIR='' "/dir/cthon/$group/$name" "$@" > /tmp/cthon.said 2>&1; then
    echo "cthon $group/$name: good"
    grep -h ' in .* seconds' /tmp/cthon.said || true
  else
    cat /tmp/cthon.said
    echo "cthon $group/$name: FAILED"
    return 1
  fi
}
if [ -d /dir/cthon ]; then
  # The programs run commands with /bin/sh.
  [ -e /bin/sh ] || ln -s bash /bin/sh
  export NFSTESTDIR=/nfs/cthon-basic
  for number in 1 2 3 4 5 5a 5b 6 7 7a 7b 8 9; do cthon basic "test$number" -t; done
  cd / && rm -r "$NFSTESTDIR"
  mkdir /nfs/cthon-special && cd /nfs/cthon-special && umask 0
  cthon special op_unlk; cthon special op_ren; cthon special op_chmod
  cthon special dupreq 100 testfile; cthon special excltest; cthon special negseek testfile; cthon special rename 100
  cthon special truncate; cthon special holey; cthon special nfsidem 50 testdir; cthon special rewind; cthon special telldir
  cthon special freesp; cthon special bigfile -s 30 bigfile; cthon special bigfile2 bigfile
  umask 022; cd / && rm -r /nfs/cthon-special
fi

# The server is killed while files are written. The client sends again what the server had not committed.
python3 - <<'PY' & writer=$!
import os, random
for n in range(40):
    fd = os.open(f'/nfs/kept{n}', os.O_RDWR | os.O_CREAT)
    os.write(fd, random.Random(n).randbytes(600_000))
    os.close(fd)
PY
sleep 1; echo KILL
wait "$writer"; echo "written across a kill"
sync; umount /nfs
mount -i -t nfs -o "$options" 10.0.2.2:/tank/fs /nfs
python3 - <<'PY'
import random
for n in range(40): assert open(f'/nfs/kept{n}', 'rb').read() == random.Random(n).randbytes(600_000), n
PY
echo "all is there"
cd /nfs && find . -type f | LC_ALL=C sort | xargs sha256sum > /tmp/sums; sed 's/^/sum /' /tmp/sums
cd / && umount /nfs
