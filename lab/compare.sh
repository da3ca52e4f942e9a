# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf compare: build stock and ours, boot both, measure, print one table.

usage() {
	cat <<-'END'
	Usage: ./wf compare [options]

	Builds stock Linux and ours, boots each under QEMU, runs folio-measure in both, prints
	one table and writes build/compare.json. Installs and fetches what it needs.

	  --quick         less memory and fewer folio sizes, for a first look
	  --only NAME,…   only these experiments: reuse cow collapse zero mincore lazyfree
	                  guard
	  --accel A       icount (also "auto"): one CPU, counts instructions, repeats exactly
	                  tcg: several CPUs, wall-clock time; kvm: the same where /dev/kvm is
	  --series S      compare another series with stock: a directory of patches that
	                  git am takes, or a range of commits in the git tree of --tree
	  --tree T        the git tree of the range (default: build/tree, see ./wf tree)
	  --memory SIZE   memory of the largest write experiment (256M, quick 64M)
	  --modes         once more for each mode of the kernel's switches, side by side
	  --set S=V       with the switch S of the patched kernel at V (several times)
	  --json FILE     where to write the results (build/compare.json)
	  --html DIR      make a page of the results, and of those of ./wf workload that lie
	                  in build/: tables and plots in one file, DIR/index.html
	  --from FILE     measure nothing; make the page of these results (several times)

	WF_VM_MEMORY (MiB) is the memory of each virtual machine, WF_TIMEOUT (seconds) how
	long one may take, WF_STALL how long it may say nothing.
	END
}

quick= only= accel=auto series=ours series_tree=$WF_BUILD/tree memory= modes=
html= from=() sets=()
json=$WF_BUILD/compare.json
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--quick) quick=--quick ;;
	--modes) modes=--modes ;;
	--set) value "$@" && sets+=("$REPLY") && shift ;;
	--only) value "$@" && only=$REPLY && shift ;;
	--accel) value "$@" && accel=$REPLY && shift ;;
	--series) value "$@" && series=$REPLY && shift ;;
	--tree) value "$@" && series_tree=$REPLY && shift ;;
	--memory) value "$@" && memory=$REPLY && shift ;;
	--json) value "$@" && json=$REPLY && shift ;;
	--html) value "$@" && html=$REPLY && shift ;;
	--from) value "$@" && from+=("$REPLY") && shift ;;
	*) bad_use "no such option: $1" ;;
	esac
	shift
done

. "$WF_TOP/lab/needs.sh"
. "$WF_TOP/lab/fetch.sh"
. "$WF_TOP/lab/patches.sh"
. "$WF_TOP/lab/build.sh"
. "$WF_TOP/lab/boot.sh"
. "$WF_TOP/lab/programs.sh"

experiments=$(sed -n 's/^\t{ "\([a-z]*\)", run_.*/\1/p' "$WF_TOP/measure/main.c" | paste -sd' ')
[[ ,$only, != *,,* ]] || [ -z "$only" ] || bad_use "--only: an empty name in \"$only\"; there are: $experiments"
for e in ${only//,/ }; do
	case " $experiments " in
	*" $e "*) ;;
	*) bad_use "--only: no experiment \"$e\"; there are: $experiments" ;;
	esac
done
[[ $memory =~ ^([0-9]+[KkMmGg]?)?$ ]] || bad_use "--memory: \"$memory\" is not a size such as 64M"
[ -d "$(dirname "$json")" ] || [ "$json" = "$WF_BUILD/compare.json" ] || bad_use "--json: no such directory: $(dirname "$json")"
for e in "${sets[@]}"; do switch_check "$e" "$series"; done
accel_resolve measure
[ ${#from[@]} = 0 ] || [ -n "$html" ] || bad_use "--from is for --html"
for f in "${from[@]}"; do [ -f "$f" ] || bad_use "--from: no such file: $f"; done

# Make $html/index.html of results.
html_write() {
	mkdir -p "$html" || die "cannot write to $html"
	program_report
	step "Drawing the plots" "$WF_LOG/html.log" : "$WF_BUILD/html" --out "$html" "$@" ||
		die "no page: $(why "$WF_LOG/html.log") (log: $(short "$WF_LOG/html.log"))"
	say "Page: $(short "$html/index.html")"
}

[ -z "$html" ] || needs_install gcc libc6-dev libjansson-dev gnuplot-nox
if [ ${#from[@]} -gt 0 ]; then
	mkdir -p "$WF_BUILD"
	html_write "${from[@]}"
	exit 0
fi
needs_install
what=$series
series_find "$series"
if [ "$series" = ours ]; then
	what="Wholefolio" name=ours
else
	what="the series ${what##*/}" name=series
fi

measure_args=($quick ${only:+--only "$only"} ${memory:+--memory "$memory"})
vm_memory=${WF_VM_MEMORY:-2048}
thp=/sys/kernel/mm/transparent_hugepage

# measure_job FILE ARGUMENT…: the job that runs folio-measure with these arguments; with
# the switches as $sets says, on the kernel that has them.
measure_job() {
	local file=$1 e

	shift
	for e in "${sets[@]}"; do
		printf '[ ! -e %s ] || echo %s >%s || exit 1\n' "$thp/${e%=*}" "${e#*=}" "$thp/${e%=*}"
	done >"$file"
	cat >>"$file" <<-END
	echo 0 >/proc/sys/kernel/printk_ratelimit 2>/dev/null
	/wf/folio-measure --json /tmp/result $* >/tmp/table
	status=\$?
	cat /tmp/result >/dev/ttyS1
	exit \$status
	END
}

# measure_boot PREFIX ACCEL CPUS JOB: what folio-measure says on both, into $results.
measure_boot() {
	initramfs "$work/$1.cpio" "$4" "$work/folio-measure"
	boot_both "$1" "$2" "$3" "$work/$1.cpio" folio-measure
	results+=("$work/$1-stock.json" "$work/$1-$name.json")
}

series_build "$name" lab
stock_kernel=$stock/arch/x86/boot/bzImage
scratch_in "$WF_BUILD"
work=$scratch
program_measure "$work"
program_report

results=()
started=$SECONDS
case $accel in
icount) cpus=1 ;;
*) cpus=4 ;;
esac
measure_job "$work/job" "${measure_args[@]}" $modes
measure_boot compare "$accel" "$cpus" "$work/job"
if [ "$accel" = icount ] && { [ -z "$only" ] || [[ ,$only, = *,reuse,* ]]; }; then
	# What needs real concurrency is timed, not counted, in boots of its own.
	measure_job "$work/job" --quick --only reuse
	measure_boot threads tcg 4 "$work/job"
fi
say "Measured in $(since $started)"

rc=0
report_write "$json" --set series="$what" \
	--set command="./wf compare${quick:+ $quick}${only:+ --only $only}${modes:+ $modes}${sets:+ ${sets[*]/#/--set }}" \
	"${results[@]}" || rc=$?
say ""
say "Results: $(short "$json")"
if [ -n "$html" ]; then
	more=()
	for f in "$WF_BUILD"/workload-*.json; do [ ! -f "$f" ] || more+=("$f"); done
	html_write "$json" "${more[@]}"
fi
exit $rc
