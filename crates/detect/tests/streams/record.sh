#!/bin/bash
# Records the streams beside it, each from a new file system, as root: crates/detect/tests/streams/record.sh
# They were made by Linux 6.18 and btrfs-progs 6.2. Run it in this folder to make them anew; recorded.rs knows what each holds.
set -e
out=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d /dev/shm/driftless-streams-XXXXXX)
trap 'cd /; umount -q "$work/mnt" || true; rm -r "$work"' EXIT
mkdir "$work/mnt"

# record NAME VERSION: `older` makes the first snapshot, `newer` changes it into the second.
record() {
  truncate -s 128M "$work/image"
  mkfs.btrfs -q "$work/image" 2>/dev/null
  mount -o loop "$work/image" "$work/mnt"
  btrfs subvolume create "$work/mnt/live" >/dev/null
  cd "$work/mnt/live"
  older
  btrfs subvolume snapshot -r . ../older >/dev/null
  newer
  btrfs subvolume snapshot -r . ../newer >/dev/null
  cd "$out"
  btrfs send -q --no-data --proto "$2" -p "$work/mnt/older" "$work/mnt/newer" >"$out/$1.stream"
  umount "$work/mnt"
  rm "$work/image"
}

bytes() { head -c "$1" /dev/zero | tr '\0' "$2"; }

older() {
  mkdir -p dir/sub gone/deep stay
  bytes 100000 a >dir/file
  bytes 100000 a >stay/database
  bytes 50000 b >stay/shorter
  touch gone/deep/file stay/mode stay/attribute stay/other gone/file
  bytes 9000 c >stay/linked
  ln stay/linked stay/second
  echo replaced >stay/replaced
}

newer() {
  mv dir/file dir/sub/moved
  bytes 4096 x | dd of=stay/database bs=4096 seek=2 conv=notrunc status=none
  bytes 10 x | dd of=stay/database bs=1 seek=90000 conv=notrunc status=none
  truncate -s 20000 stay/shorter
  chmod 600 stay/mode
  setfattr -n user.key -v value stay/attribute
  rm -r gone
  rm stay/second
  ln stay/linked stay/third
  echo new >stay/temporary
  mv stay/temporary stay/replaced
  mkdir made
  echo content >$'made/a\nb \xff'
  ln -s target made/link
  mkfifo made/pipe
}
record everyday 1
record everyday-2 2

older() {
  mkdir -p a/x b/y c/one/two chain1 chain2 chain3 out/deep in
  touch a/x/1 b/y/2 c/one/two/3 chain1/1 chain2/2 chain3/3 out/deep/file plain other
  echo first >plain
  echo second >other
}

newer() {
  mv a swap; mv b a; mv swap b                               # swapped directories
  mv plain swap; mv other plain; mv swap other               # swapped files
  mv chain3 chain4; mv chain2 chain3; mv chain1 chain2       # a chain
  mv c/one/two two; mv c two/c                               # a directory below what it held
  mkdir new; mv out new/out                                  # into a new one
  rm new/out/deep/file
  mkdir out; touch out/deep                                  # another one in its place
  rmdir in; mv chain4 in                                     # over an empty directory
}
record renames 1
