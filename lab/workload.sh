# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf workload: real programs on stock and on ours, one table a workload.

usage() {
	cat <<-'END'
	Usage: ./wf workload NAME… [options]        (all: each of them)

	Boots stock Linux and ours, as wf compare does, runs real programs in both with THP
	off, 64 KiB and 2 MiB folios, prints a table and writes build/workload-NAME.json. The
	programs come out of Debian's packages, through apt; nothing is installed.

	  redis       redis-server: SETs before, while and after a snapshot is saved
	  valkey      valkey-server: the same
	  usemem      stress-ng: processes that prefault, fork, rewrite, map, move memory
	  jemalloc    an allocator that gives back by MADV_FREE, mixed sizes
	  residency   vmtouch and fincore on a large cached file

	  --quick       less memory, fewer operations, two repeats instead of three
	  --only NAME,… as naming them
	  --folio KIB   only this size of 4, 64, 2048
	  --repeats N   how often each figure is measured
	  --set S=V     with the switch S of our kernel at V (such as wp_copy=never)
	  --accel A     icount (also "auto"): one CPU, figures in instructions; tcg or kvm: two
	                CPUs, figures in time, results in build/workload-NAME-A.json
	  --json FILE   where to write the results, of one workload
	  --list        print the names

	WF_VM_MEMORY (MiB) is the memory of each virtual machine, WF_TIMEOUT (seconds) how
	long one may take, WF_STALL how long it may say nothing.
	END
}

workloads="redis valkey usemem jemalloc residency"
quick= folio= repeats= accel=auto json= wanted=() sets=()
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--list) printf '%s\n' $workloads && exit 0 ;;
	--quick) quick=--quick ;;
	--only) value "$@" && wanted+=(${REPLY//,/ }) && shift ;;
	--folio) value "$@" && folio=$REPLY && shift ;;
	--repeats) value "$@" && repeats=$REPLY && shift ;;
	--set) value "$@" && sets+=("$REPLY") && shift ;;
	--accel) value "$@" && accel=$REPLY && shift ;;
	--json) value "$@" && json=$REPLY && shift ;;
	-*) bad_use "no such option: $1" ;;
	all) wanted+=($workloads) ;;
	*) wanted+=("$1") ;;
	esac
	shift
done
[ ${#wanted[@]} -gt 0 ] || bad_use "which workload? There are: $workloads"
for w in "${wanted[@]}"; do
	[[ " $workloads " = *" $w "* ]] || bad_use "no workload \"$w\"; there are: $workloads"
done
[[ $folio =~ ^(4|64|2048)?$ ]] || bad_use "--folio: \"$folio\" is none of 4, 64, 2048"
[[ $repeats =~ ^([1-9][0-9]?)?$ ]] || bad_use "--repeats: \"$repeats\" is no number from 1 to 99"
for w in "${sets[@]}"; do switch_check "$w" ours; done
[ -z "$json" ] || [ ${#wanted[@]} = 1 ] || bad_use "--json: the results of one workload only"
[ -z "$json" ] || [ -d "$(dirname "$json")" ] || bad_use "--json: no such directory: $(dirname "$json")"

# Real programs on emulated CPUs take their time, and say little.
WF_TIMEOUT=${WF_TIMEOUT:-7200} WF_STALL=${WF_STALL:-900}

. "$WF_TOP/lab/needs.sh"
. "$WF_TOP/lab/fetch.sh"
. "$WF_TOP/lab/patches.sh"
. "$WF_TOP/lab/build.sh"
. "$WF_TOP/lab/boot.sh"
. "$WF_TOP/lab/programs.sh"
. "$WF_TOP/lab/packages.sh"

accel_resolve measure
cpus=1
[ "$accel" = icount ] || cpus=2
vm_memory=${WF_VM_MEMORY:-2048}

# The programs of a workload. Debian's redis-server is a link to a file of redis-tools.
workload_programs() {
	local lib=usr/lib/x86_64-linux-gnu

	case $1 in
	redis) programs_fetch redis usr/bin/redis-check-rdb=redis-server -- redis-tools ;;
	valkey) programs_fetch valkey usr/bin/valkey-check-rdb=valkey-server -- valkey-tools ;;
	usemem) programs_fetch usemem usr/bin/stress-ng -- stress-ng ;;
	jemalloc) programs_fetch jemalloc $lib/libjemalloc.so.2 -- libjemalloc2 ;;
	residency) programs_fetch residency usr/bin/vmtouch usr/bin/fincore -- vmtouch util-linux-extra ;;
	esac
}

workload_run() {
	local out=${json:-$WF_BUILD/workload-$1$([ "$accel" = icount ] || echo "-$accel").json} rc=0 started=$SECONDS versions

	workload_programs "$1"
	versions=$(paste -sd, "$programs/versions" | sed 's/ *,/, /g; s/ *$//')
	say "Running $1: $versions"
	cat >"$work/job" <<-END
	/wf/folio-workload --json /tmp/result $quick ${folio:+--folio $folio} ${repeats:+--repeats $repeats} ${sets[*]/#/--set } $1 >/tmp/table
	status=\$?
	cat /tmp/result >/dev/ttyS1
	exit \$status
	END
	initramfs "$work/cpio" "$work/job" "$WF_BUILD/workload/folio-workload" "$WF_BUILD/workload/alloc-mix"
	programs_cpio >"$work/list"
	"$stock/usr/gen_init_cpio" "$work/list" >>"$work/cpio" || die "cannot write $(short "$work/cpio")"
	boot_both "workload-$1" "$accel" "$cpus" "$work/cpio" folio-workload
	report_write "$out" --set series="Wholefolio" --set workload="$1" --set programs="$versions" --set cpus="$cpus" \
		--set command="./wf workload $1${quick:+ $quick}${folio:+ --folio $folio}${repeats:+ --repeats $repeats}${sets:+ ${sets[*]/#/--set }} --accel $accel" \
		"$work/workload-$1-stock.json" "$work/workload-$1-ours.json" || rc=$?
	say ""
	say "Results of $1, after $(since $started): $(short "$out")"
	return $rc
}

needs_install
series=ours name=ours
series_build ours lab
stock_kernel=$stock/arch/x86/boot/bzImage
scratch_in "$WF_BUILD"
work=$scratch
program_make workload workload
program_report

failed=0
for w in "${wanted[@]}"; do
	workload_run "$w" || failed=1
done
exit $failed
