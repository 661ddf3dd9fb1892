# append: a file gets a line at a time, each by a process of its own, which is the worst that a preloaded library meets.
#
#   sh append.sh FILE LINES
number=0
while [ "$number" -lt "$2" ]; do
    /bin/echo "$number" >>"$1"
    number=$((number + 1))
done
