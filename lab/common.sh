# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Messages, progress, children, scratch directories, and where things lie.

. "$WF_TOP/kernel/BASE"

WF_BUILD=$(realpath -ms "${WF_BUILD:-$WF_TOP/build}")
WF_LOG=$WF_BUILD/log

# Where downloads and finished stock builds are kept, whatever becomes of a clone.
# A machine without a usable home directory keeps them with what is built.
WF_CACHE=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
WF_CACHE=${WF_CACHE:+$WF_CACHE/wholefolio}
if [ -z "$WF_CACHE" ] || ! mkdir -p "$WF_CACHE" 2>/dev/null; then
	WF_CACHE=$WF_BUILD/cache
fi

say() {
	progress_clear
	printf '%s\n' "$*" >&2
}

die() {
	say "wf: $*"
	exit 1
}

bad_use() {
	say "wf $WF_CMD: $*"
	say "Try: ./wf $WF_CMD --help"
	exit 2
}

# $REPLY is the value of an option that must have one.
value() {
	[ $# -ge 2 ] && [ -n "$2" ] || bad_use "$1 needs a value"
	REPLY=$2
}

# End unless $1 is SWITCH=VALUE, as --set takes it; with the series $2 "ours", of a switch that our
# kernel has.
switch_check() {
	[[ $1 =~ ^[a-z_]+=[a-z0-9]+$ ]] || bad_use "--set: \"$1\" is not SWITCH=VALUE"
	[ "$2" != ours ] || grep -rqw "${1%=*}_attr" "$WF_TOP/kernel/mm" || bad_use "--set: our kernel has no switch \"${1%=*}\""
}

# A path as a person reads it best.
short() {
	case $1 in
	"$PWD"/*) printf '%s' "${1#"$PWD"/}" ;;
	*) printf '%s' "$1" ;;
	esac
}

# Seconds since $1 (a value of SECONDS) as 1m05 or 7s.
since() {
	local s=$((SECONDS - $1))

	if [ $s -ge 60 ]; then
		printf '%dm%02d' $((s / 60)) $((s % 60))
	else
		printf '%ds' $s
	fi
}

progress_clear() {
	[ ! -t 2 ] || printf '\r\e[K' >&2
}

# One line that is rewritten on a terminal; elsewhere a line every half minute.
progress() {
	if [ -t 2 ]; then
		printf '\r\e[K%.*s' "$((${COLUMNS:-80} - 1))" "$*" >&2
	elif [ "$SECONDS" -ge "${progress_next:-0}" ]; then
		printf '%s\n' "$*" >&2
		progress_next=$((SECONDS + 30))
	fi
}

# ---- children and scratch: nothing of either survives this script ------------

children=()
scratches=()

cleanup() {
	local rc=$? pid n=0

	trap '' INT TERM HUP
	for pid in "${children[@]}"; do
		kill -TERM -- "-$pid" 2>/dev/null || :
	done
	for pid in "${children[@]}"; do
		while kill -0 -- "-$pid" 2>/dev/null && [ $((n += 1)) -lt 50 ]; do
			sleep 0.1
		done
		kill -KILL -- "-$pid" 2>/dev/null || :
	done
	[ ${#scratches[@]} = 0 ] || rm -rf -- "${scratches[@]}"
	case $rc in 129 | 130 | 143) say "wf: interrupted; nothing is left running" ;; esac
	exit $rc
}
trap cleanup EXIT
# Nothing fails without a word.
set -E
trap 'say "wf: failed at ${BASH_SOURCE[0]##*/}:$LINENO: $BASH_COMMAND"' ERR
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Start a command in a process group of its own; its pid is in $child. Output to file $1.
spawn() {
	local log=$1

	shift
	set -m
	"$@" >"$log" 2>&1 </dev/null &
	child=$!
	set +m
	children+=("$child")
}

alive() {
	kill -0 "$1" 2>/dev/null
}

# End a child that spawn started, if it has not ended; its status is the result.
reap() {
	local pid=$1 rc=0 kept=() p

	wait "$pid" || rc=$?
	for p in "${children[@]}"; do
		[ "$p" = "$pid" ] || kept+=("$p")
	done
	children=("${kept[@]}")
	return $rc
}

# Run a command to its end with progress: title, log file, a function that says how
# far it is (or :), then the command.
step() {
	local title=$1 log=$2 far=$3 start=$SECONDS pid

	shift 3
	mkdir -p "${log%/*}"
	spawn "$log" "$@"
	pid=$child
	sleep 0.1
	while alive "$pid"; do
		progress "$title: $("$far" "$log")$(since $start)"
		sleep 0.5
	done
	progress_clear
	reap "$pid"
}

# A new directory in $1 that is removed at the end; its path is in $scratch.
scratch_in() {
	mkdir -p "$1" 2>/dev/null || die "cannot write to $1"
	scratch=$(mktemp -d "$1/tmp.XXXXXX") || die "cannot write to $1"
	scratches+=("$scratch")
}

# The line of a log that tells best why something went wrong.
why() {
	if [ "$(df -Pk "${1%/*}" | awk 'END { print $4 }')" -lt 256 ]; then
		echo "No space left on the device of $(short "${1%/*}")"
		return
	fi
	grep -m1 -aiE 'No space left|error:|Error [0-9]|fatal:|^E:|cannot|failed' "$1" ||
		tail -n 1 "$1"
}
