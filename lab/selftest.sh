#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Tests of the lab itself; `wf test` runs each by its name. Exit status 0 passed, 77
# skipped, else failed; the last line says why.
set -euo pipefail

WF_TOP=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
WF_CMD=selftest
. "$WF_TOP/lab/common.sh"
wf=$WF_TOP/wf
export WF_BUILD
cache=$WF_CACHE

fail() {
	[ ! -f "$work/out" ] || sed 's/^/  | /' "$work/out"
	echo "$*"
	exit 1
}

skip() {
	echo "$*"
	exit 77
}

# expect STATUS TEXT COMMAND…: that status, and a line of the output that matches TEXT.
expect() {
	local want=$1 text=$2 rc=0

	shift 2
	echo "+ $*"
	"$@" >"$work/out" 2>&1 </dev/null || rc=$?
	[ "$rc" = "$want" ] || fail "status $rc, not $want, of: $*"
	grep -qE -- "$text" "$work/out" || fail "no \"$text\" in the output of: $*"
	sed 's/^/  | /' "$work/out"
}

# A directory whose one patch replaces, in file $1, the line that matches $2 with $3.
series_of() {
	local file=$1 old new

	mkdir -p "$work/series" "$work/a/$(dirname "$file")" "$work/b/$(dirname "$file")"
	cp "$(ls -dt "$cache"/stock-lab-*/ | head -n1)/$file" "$work/a/$file"
	sed "0,/$2/s//$3/" "$work/a/$file" >"$work/b/$file"
	! cmp -s "$work/a/$file" "$work/b/$file" || fail "no line $2 in $file"
	{
		printf 'From: Nobody <nobody@localhost>\nSubject: [PATCH] test of the lab\n\nBody.\n---\n'
		(cd "$work" && diff -u "a/$file" "b/$file") || :
	} >"$work/series/0001-test.patch"
}

compare_series() {
	"$wf" compare --quick --only guard --series "$work/series" --json "$work/compare.json"
}

# Nothing of a run of wf is left: neither processes nor scratch directories in $1.
nothing_left() {
	local left

	# what pgrep saw may have ended since
	left=$(pgrep -f -- "(file:|-C )$WF_LOG" | paste -sd, | xargs -r ps -o args= -p | cut -c1-100) || :
	[ -z "$left" ] || fail "still running: $left"
	left=$(find "$@" -maxdepth 1 \( -name 'tmp.*' -o -name 'partial.*' \) -newer "$work/start" ! -path "$work" 2>/dev/null)
	[ -z "$left" ] || fail "left behind: $left"
}

t_bad_arguments() {
	expect 2 'no command "frobnicate"' "$wf" frobnicate
	expect 2 'Usage' "$wf"
	expect 2 'no such option: --frobnicate' "$wf" compare --frobnicate
	expect 2 'no experiment "nonsense"' "$wf" compare --only nonsense
	expect 2 'none of auto, icount, tcg, kvm' "$wf" compare --accel warp
	expect 2 '--memory' "$wf" compare --memory much
	expect 2 '--json needs a value' "$wf" compare --json
	expect 2 'no such directory' "$wf" compare --json "$work/none/x.json"
	expect 2 'no test "nonsense"' "$wf" test nonsense
	expect 2 'no workload "nonsense"' "$wf" workload nonsense
	expect 2 'which workload' "$wf" workload --quick
	expect 2 'none of 4, 64, 2048' "$wf" workload redis --folio 5
	expect 2 'no such option' "$wf" tree --frobnicate
	expect 2 '--from is for --html' "$wf" compare --from "$work/none.json"
	expect 2 'no such file' "$wf" compare --html "$work" --from "$work/none.json"
	expect 2 'no check "nonsense"' "$wf" check --only nonsense
	expect 2 'no patch "nonsense"' "$wf" check --patch nonsense
	expect 2 'no such file' "$wf" deb --config "$work/none"
	expect 2 'configuration of its own' "$wf" deb --try --config /dev/null
	expect 1 'neither a directory of patches nor a range' "$wf" compare --series "$work/none"
}

t_help() {
	local c

	for c in compare test check workload measure tree series deb shell doctor clean; do
		expect 0 "Usage: ./wf $c" "$wf" $c --help
	done
	expect 0 'compare' "$wf" --help
}

t_no_network() {
	local dead=http://127.0.0.1:9

	expect 1 '^wf: no source: .*fetch.log' env -u WF_LINUX XDG_CACHE_HOME="$work/cache" WF_BUILD="$work/build" \
		http_proxy=$dead https_proxy=$dead HTTP_PROXY=$dead HTTPS_PROXY=$dead \
		APT_CONFIG="$(apt_without_network)" "$wf" compare --quick
	nothing_left "$work/cache/wholefolio" "$work/build"
}

# A configuration of apt that reaches no mirror, whatever the machine's own says.
apt_without_network() {
	cat >"$work/apt.conf" <<-END
	Acquire::http::Proxy "http://127.0.0.1:9";
	Acquire::https::Proxy "http://127.0.0.1:9";
	END
	echo "$work/apt.conf"
}

t_wrong_checksum() {
	echo 'not a kernel' >"$work/linux.tar.xz"
	expect 1 'wrong checksum' env WF_LINUX="$work/linux.tar.xz" "$wf" compare --quick
	expect 1 'no such file' env WF_LINUX="$work/none.tar.xz" "$wf" compare --quick

	# A damaged file in the cache is noticed and thrown away.
	. "$WF_TOP/kernel/BASE"
	mkdir -p "$work/cache/wholefolio"
	echo 'not a kernel' >"$work/cache/wholefolio/linux-$debian.tar.xz"
	echo 0 >"$work/cache/wholefolio/linux-$debian.tar.xz.sha256"
	expect 1 'wrong checksum.*damaged' env -u WF_LINUX XDG_CACHE_HOME="$work/cache" WF_BUILD="$work/build" \
		http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 \
		APT_CONFIG="$(apt_without_network)" "$wf" compare --quick
	[ -z "$(ls "$work/cache/wholefolio"/linux-* 2>/dev/null)" ] || fail "the damaged file is still there"
}

t_full_disk() {
	[ "$(id -u)" = 0 ] || skip "needs root to mount a small file system"
	mkdir "$work/small"
	mount -t tmpfs -o size=16m none "$work/small" 2>/dev/null || skip "cannot mount a tmpfs here"
	trap 'umount -l "$work/small"; cleanup' EXIT
	expect 1 '^wf: .*No space left' env WF_BUILD="$work/small/build" "$wf" compare --quick --only guard
	[ -z "$(find "$work/small" -name 'tmp.*')" ] || fail "half a copy is left behind"
	[ ! -e "$work/small/build/linux-ours" ] || fail "half a tree is left behind"
	expect 1 '^wf: .*(No space left|full|cannot)' env WF_LINUX="$(ls "$cache"/linux-*.tar.xz | head -n1)" \
		XDG_CACHE_HOME="$work/small/cache" "$wf" compare --quick --only guard
	[ -z "$(find "$work/small" -name 'partial.*')" ] || fail "half a source is left behind"
}

t_patch_does_not_apply() {
	series_of mm/memory.c 'return' 'retrun'
	sed -i 's/^-.*return/-never there return/' "$work/series/0001-test.patch"
	expect 1 '0001-test.patch does not apply; nothing was changed' compare_series
	grep -q 'never there' "$work/out" || fail "the rejected hunk is not shown"
	nothing_left "$WF_BUILD"
}

t_kernel_does_not_build() {
	series_of mm/mincore.c '^#include' 'this is no C;\n#include'
	expect 1 'kernel does not build \(log: .*build-series.log\)' compare_series
	nothing_left "$WF_BUILD"
}

t_kernel_panics() {
	series_of mm/mincore.c '\(^SYSCALL_DEFINE3(mincore.*\)' \
		'static int __init lab_panics(void)\n{\n\tpanic("test of the lab");\n}\nlate_initcall(lab_panics);\n\n\1'
	expect 1 '^wf: series: Kernel panic - not syncing: test of the lab \(log: .*console\)' compare_series
	[ ! -e "$work/compare.json" ] || fail "there are results"
	nothing_left "$WF_BUILD"
}

t_kernel_hangs() {
	series_of mm/mincore.c '\(^SYSCALL_DEFINE3(mincore.*\)' \
		'static int __init lab_hangs(void)\n{\n\twhile (jiffies)\n\t\tcpu_relax();\n\treturn 0;\n}\nlate_initcall(lab_hangs);\n\n\1'
	WF_STALL=60 expect 1 '^wf: series: the kernel hangs: .*\(log: .*console\)' compare_series
	nothing_left "$WF_BUILD"
}

# After all that could go wrong the next run works.
t_next_run_works() {
	series_of mm/mincore.c '^#include' '\n#include'
	expect 0 'guard' compare_series
	grep -q '"experiment": "guard"' "$work/compare.json" || fail "no rows in compare.json"
	nothing_left "$WF_BUILD"
}

# Ctrl-C while the kernels are measured leaves nothing running and no results.
t_interrupted() {
	local pid n=0 rc=0

	rm -f "$WF_LOG"/compare-*.console
	set -m
	"$wf" compare --quick --json "$work/compare.json" >"$work/out" 2>&1 </dev/null &
	pid=$!
	set +m
	children+=("$pid")
	while ! grep -qs 'wf: up' "$WF_LOG/compare-ours.console"; do
		kill -0 $pid 2>/dev/null && [ $((n += 1)) -lt 3000 ] || fail "no kernel was booted"
		sleep 0.2
	done
	pgrep -f -- "file:$WF_LOG" >/dev/null || fail "no QEMU to interrupt"
	kill -INT -- -$pid
	wait $pid || rc=$?
	[ $rc = 130 ] || fail "status $rc, not 130, after Ctrl-C"
	[ ! -e "$work/compare.json" ] || fail "there are results"
	nothing_left "$WF_BUILD" "$cache"
}

# A real program out of a package runs on both kernels, and its figures are all there.
t_workload() {
	local rc=0

	"$wf" workload residency --quick --folio 4 --repeats 1 --json "$work/workload.json" >"$work/out" 2>&1 </dev/null || rc=$?
	! grep -q '^wf: no programs' "$work/out" || skip "$(grep '^wf: no programs' "$work/out")"
	[ $rc = 0 ] || fail "status $rc"
	grep -qE '^  vmtouch +4 KiB +[0-9]' "$work/out" || fail "no line of vmtouch in the table"
	for w in vmtouch fincore; do
		grep -A5 "\"$w\"" "$work/workload.json" | grep -q '"metric": "insns"' || fail "no instructions of $w in the results"
	done
	nothing_left "$WF_BUILD"
}

# A program that the machine cannot run is a failure that names the program and the log.
t_workload_fails() {
	mkdir -p "$work/cache/wholefolio"
	ln -s "$cache"/* "$work/cache/wholefolio/"
	[ -e "$cache/programs-trixie-residency/.wf-complete" ] || skip "no programs in the cache; lab/workload fetches them"
	rm "$work/cache/wholefolio/programs-trixie-residency"
	cp -a "$cache/programs-trixie-residency" "$work/cache/wholefolio/"
	rm "$work/cache/wholefolio/programs-trixie-residency/lib/libc.so.6"
	expect 1 'FAILED on stock: residency vmtouch 4 KiB: vmtouch ended with status 127; last: .*libc.so.6' \
		env XDG_CACHE_HOME="$work/cache" "$wf" workload residency --quick --folio 4 --repeats 1 --json "$work/workload.json"
	nothing_left "$WF_BUILD"
}

# One row of results.
row() {
	printf '{"experiment": "%s", "case": "%s", "folio_kb": 64, "metric": "%s", "stock": %s, "wholefolio": %s, "ratio": %s, "spread": 0}' "$@"
}

# The page says what the rows say, marks what is worse, and is one well-formed file.
t_html() {
	local html=$work/page/index.html

	printf '{"base": "9.9", "accel": "icount", "series": "A <b> & C", "rows": [%s, %s, %s, %s, %s, %s]}' \
		"$(row reuse seq insns 1000 100 0.1)" "$(row reuse seq faults 16 1 0.0625)" \
		"$(row reuse store-2m insns 1000 1250 1.25)" "$(row reuse store-2m max 50 60 1.2)" \
		"$(row guard fork insns 700 703 1.004)" "$(row other '<x>' ops_per_s 10 20 2)" >"$work/results.json"
	expect 0 'Page: .*index.html' "$wf" compare --html "$work/page" --from "$work/results.json"
	[ "$(ls "$work/page")" = index.html ] || fail "more than the page is left: $(ls "$work/page")"
	grep -q 'Of 4 cases.*<strong>2</strong>, the same within 1 % in 1, and worse in <strong>1</strong>' "$html" ||
		fail "the answer is wrong: $(grep 'class="answer"' "$html")"
	[ "$(grep -c '<tr class="lose">.*&#9650;&#160;1.250.*worse' "$html")" = 1 ] || fail "one row should be marked as worse"
	grep -q '&lt;x&gt;.*2.000.*better' "$html" || fail "a case of another experiment is missing"
	[ "$(grep -c '<svg' "$html")" = "$(grep -c '<details>' "$html")" ] || fail "a plot has no table"
	grep -q '<svg' "$html" || fail "there is no plot"
	! grep -E '(src|href)="?https?:' "$html" || fail "the page needs the network"
	! command -v xmllint >/dev/null || xmllint --noout "$html" || fail "the page is not well-formed"
	echo '{"rows": 1}' >"$work/results.json"
	expect 1 'is not a complete result' "$wf" compare --html "$work/page2" --from "$work/results.json"
	[ ! -e "$work/page2/index.html" ] || fail "half a page is left"
}

t_check() {
	expect 0 'fit to be sent' "$wf" check --only checkpatch,kdoc
	expect 0 'thp-batch +ok$' "$wf" check --only checkpatch --patch thp-batch
}

t_doctor() {
	expect 0 'qemu-system-x86' "$wf" doctor
}

[ $# = 1 ] && declare -F "t_$1" >/dev/null || {
	echo "Usage: selftest.sh NAME"
	exit 2
}
scratch_in "$WF_BUILD"
work=$scratch
touch "$work/start"
"t_$1"
