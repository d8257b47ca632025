# Keeps one command: starts it in a process group of its own and ends the group when it is told to, when standard input ends, or
# when nothing has come from there for $1 seconds (0: however long). $2 is an environment variable and its value, by which all that
# the command starts is known; the rest is the command. The first line of standard input sets the command's environment, out of sight of
# others. Behind it come words of one letter: "." all is well, "t" ask the group to end, "k" end it. The command's own standard
# input ends with this script.
silence=$1 mark=$2
shift 2
trap '' HUP PIPE
exec 3<&0
nl='
'
IFS= read -r variables || exit 125
dir=$(mktemp -d) && mkfifo "$dir/in" || exit 125
start() {
	eval "$variables"
	unset variables
	exec "$@"
}
if command -v setsid >/dev/null 2>&1; then
	(start setsid "$@") <"$dir/in" 3<&- &
else
	set -m # each background job has a group of its own then
	(start "$@") <"$dir/in" 3<&- &
fi
pid=$!
exec 4>"$dir/in"
rm -r "$dir"
if [ "$silence" != 0 ] && command -v timeout >/dev/null 2>&1; then
	word() { timeout "$silence" head -c 1 <&3; }
else
	word() { head -c 1 <&3; }
fi
leftovers() { # ends what has left the group, where the system tells; twice, since a process in the middle of an exec has no environment
	for _ in 1 2; do
		for f in $(grep -slzxF -e "$mark" /proc/[0-9]*/environ 2>/dev/null); do
			f=${f#/proc/}
			kill -KILL "${f%/environ}" 2>/dev/null
		done
	done
}
# The command has a group from some moment on; before, it is a process of this script's.
signal() { kill -"$1" -$pid 2>/dev/null || kill -"$1" $pid 2>/dev/null; }
(
	exec 4>&-
	ask=TERM
	while :; do
		case $(word) in
		.) ;;
		t) signal TERM ;;
		k) ask=KILL; break ;;
		*) break ;;
		esac
	done
	if [ $ask = TERM ]; then signal TERM && sleep 5; fi
	while signal KILL; do sleep 1; done # until the script below has seen it end, and ends this
) >/dev/null 2>&1 &
watcher=$!
wait $pid 2>/dev/null # the shell itself would say "Killed"
status=$?
exec 4>&-
kill -KILL -$pid 2>/dev/null
leftovers
kill $watcher 2>/dev/null
exit $status
