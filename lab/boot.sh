# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Boots kernels under QEMU, each with an initramfs of busybox, lab/init, programs and a job.

# Seconds without a sign of life, and at most, before a kernel counts as hung.
WF_STALL=${WF_STALL:-300}
WF_TIMEOUT=${WF_TIMEOUT:-1800}

# Write the initramfs $1 with the job script $2 and the programs after it in /wf.
# The kernel's own gen_init_cpio needs no root for the device nodes.
initramfs() {
	local out=$1 job=$2 f

	shift 2
	{
		printf 'dir /%s 755 0 0\n' bin dev proc sys tmp wf
		printf 'nod /dev/console 600 0 0 c 5 1\nnod /dev/null 666 0 0 c 1 3\n'
		printf 'file /bin/busybox %s 755 0 0\n' "$(busybox_static)"
		printf 'file /init %s 755 0 0\nfile /job %s 644 0 0\n' "$WF_TOP/lab/init" "$job"
		for f; do printf 'file /wf/%s %s 755 0 0\n' "${f##*/}" "$f"; done
	} >"$out.list"
	"$stock/usr/gen_init_cpio" "$out.list" >"$out" || die "cannot write $(short "$out")"
}

# What "auto" means for $1, "measure" or "test".
accel_resolve() {
	case $accel in
	auto) [ "$1" = measure ] && accel=icount || accel=tcg ;;
	kvm) [ -r /dev/kvm ] && [ -w /dev/kvm ] || die "--accel kvm: /dev/kvm cannot be opened here" ;;
	icount | tcg) ;;
	*) bad_use "--accel: \"$accel\" is none of auto, icount, tcg, kvm" ;;
	esac
}

# qemu_args ACCEL CPUS MEMORY: $qemu and, in $append, the kernel's parameters. On a busy
# host emulated timers are late, which is no reason to panic or to distrust the TSC. Tests
# write to /proc/PID/mem past permissions; the kernel's unit tests are for whoever asks.
qemu_args() {
	append="console=ttyS0 panic=-1 loglevel=5 reboot=t kunit.enable=0 proc_mem.force_override=always"
	[ "$1" = icount ] || append+=" no_timer_check tsc=reliable"
	# The firmware's MP table, which a kernel without ACPI goes by, has one CPU a socket.
	qemu=(qemu-system-x86_64 -M q35 -m "$3" -smp "$2,sockets=$2,cores=1,threads=1" -no-reboot -nodefaults -display none)
	case $1 in
	icount) qemu+=(-accel tcg -icount shift=0,sleep=off -rtc clock=vm) ;;
	tcg) qemu+=(-accel tcg,thread=multi) ;;
	kvm) qemu+=(-accel kvm -cpu host) ;;
	esac
}

# Start kernel $2 with initramfs $3 as $1, with accelerator $4 on $5 CPUs with memory $6;
# more kernel parameters may follow. Console and result are $WF_LOG/$1.{console,result}.
boot_start() {
	local name=$1 image=$2 initrd=$3 qemu append

	qemu_args "$4" "$5" "$6"
	shift 6
	mkdir -p "$WF_LOG"
	rm -f "$WF_LOG/$name".{console,result,qemu}
	spawn "$WF_LOG/$name.qemu" timeout --foreground -k 5 $((WF_TIMEOUT + 60)) "${qemu[@]}" \
		-kernel "$image" -initrd "$initrd" \
		-serial "file:$WF_LOG/$name.console" -serial "file:$WF_LOG/$name.result" \
		-append "$append $*"
	boot_pid[$name]=$child
	boot_from[$name]=$SECONDS
}
declare -A boot_pid boot_from boot_seen boot_size

# The last thing a console or result shows.
boot_last() {
	{ tail -qc 300 "$WF_LOG/$1.console" "$WF_LOG/$1.result" 2>/dev/null || :; } | tr '\r' '\n' |
		sed 's/\x1b\[[0-9;?]*[a-zA-Z]//g; s/[^[:print:]]//g; /^ *$/d' | tail -n 1 | cut -c1-32
}

# Wait until all of the named kernels have ended well. The first that does not ends this
# run, with one line that says what happened and where the log is.
boot_wait() {
	local name text size left=("$@") start=$SECONDS going

	for name; do boot_seen[$name]=$SECONDS boot_size[$name]=-1; done
	while [ ${#left[@]} -gt 0 ]; do
		text= going=()
		for name in "${left[@]}"; do
			if ! alive "${boot_pid[$name]}"; then
				boot_ended "$name"
				continue
			fi
			size=$(stat -c %s "$WF_LOG/$name".{console,result} 2>/dev/null | paste -sd+) || :
			if [ "$size" != "${boot_size[$name]}" ]; then
				boot_size[$name]=$size boot_seen[$name]=$SECONDS
			elif [ $((SECONDS - boot_seen[$name])) -ge "$WF_STALL" ]; then
				boot_hangs "$name" "said nothing for ${WF_STALL}s"
				continue
			fi
			if [ $((SECONDS - boot_from[$name])) -ge "$WF_TIMEOUT" ]; then
				boot_hangs "$name" "did not end within ${WF_TIMEOUT}s"
				continue
			fi
			going+=("$name")
			text+="${name##*-}: $(boot_last "$name")  "
		done
		left=("${going[@]}")
		[ ${#left[@]} = 0 ] || {
			progress "$(since $start)  $text"
			sleep 0.5
		}
	done
	progress_clear
}

# What becomes of a run whose kernel ($1) ended badly ($2 says how); "wf test" goes on.
boot_failed() {
	die "$2"
}

boot_hangs() {
	kill -TERM -- "-${boot_pid[$1]}" 2>/dev/null || :
	reap "${boot_pid[$1]}" || :
	boot_failed "$1" "${1##*-}: the kernel hangs: it $2; last: \"$(boot_last "$1")\" (log: $(short "$WF_LOG/$1.console"))"
}

boot_ended() {
	local name=$1 log=$WF_LOG/$1.console rc=0 line

	reap "${boot_pid[$name]}" || rc=$?
	if tail -n 1 "$WF_LOG/$name.result" 2>/dev/null | grep -aqx 'wf: end [0-9]*'; then
		return 0
	elif line=$(grep -am1 'Kernel panic' "$log" 2>/dev/null); then
		line="$(tr -d '\r' <<<"${line#*] }")"
	elif [ $rc != 0 ]; then
		log=$WF_LOG/$name.qemu
		line="QEMU failed: $(tail -n 1 "$log")"
	else
		line="the kernel ended before its job did; last: \"$(boot_last "$name")\""
	fi
	boot_failed "$name" "${name##*-}: $line (log: $(short "$log"))"
}

# The exit status of the job of a kernel that ended well.
job_status() {
	tail -n 1 "$WF_LOG/$1.result" | grep -ao '[0-9]*$'
}

# What stock 7.3.4 reports of itself, without any patch:
# - memory was moved, the child got it without an anon_vma (MADV_WIPEONFORK) and unmaps a part; the
#   page offset is of the old address.
# - PAGEMAP_SCAN write-protects a page in migration: make_uffd_wp_pte() leaves the entry writable.
#   (Line 206 looks at entries that are not present; none of the series sets such.)
known_reports='WARNING: mm/vma\.h:277 at __split_vma|WARNING: mm/page_table_check\.c:206 at __page_table_check_ptes_set'

# Say so if kernel $1 made such a report.
kernel_reports_known() {
	local seen

	seen=$(grep -aoE "$known_reports" "$WF_LOG/$1.console" | sort -u | paste -sd';') || :
	[ -z "$seen" ] || say "NOTICE: $1: reported what stock reports, too: $seen"
}

# Reports of the kernel on its console: nothing of the sort is expected of a healthy one.
# But stock has data races of its own: of those that KCSAN finds only ours count, those that
# are between functions of $kernel_ours (a regular expression).
kernel_reports() {
	grep -anE 'BUG:|WARNING:|Oops|KASAN:|UBSAN:|INFO: (task|rcu)|rcu: INFO|possible recursive|possible circular|soft lockup|unreferenced object|general protection' \
		"$WF_LOG/$1.console" | tr -d '\r' | grep -vE "$known_reports" |
		awk -v ours="${kernel_ours:-.}" '!/BUG: KCSAN:/ || $0 ~ "(in| /) (" ours ")( |$)" { print; n++ } END { exit !n }'
}

# Functions of the new files in the built tree $1, for $kernel_ours.
kernel_functions() {
	nm "$1"/mm/{wp_copy,wp_reuse,lazyfree,mincore_batch,thp_batch}.o |
		awk '$2 ~ /[tT]/ { sub(/\..*/, "", $3); print $3 }' | sort -u | paste -sd'|'
}

# Show the first reports of kernel $1 with file and line, where its tree $2 can tell.
kernel_report_show() {
	local log=$WF_LOG/$1.console from

	from=$(kernel_reports "$1" | head -n 1 | cut -d: -f1)
	tail -n +"$from" "$log" | head -n 60 | tr -d '\r' |
		if grep -q '^CONFIG_DEBUG_INFO=y' "$2/.config"; then
			(cd "$2" && scripts/decode_stacktrace.sh vmlinux "$PWD" 2>/dev/null)
		else
			cat
		fi | sed 's/^/  | /'
}

# boot_both PREFIX ACCEL CPUS INITRAMFS PROGRAM: boot stock ($stock_kernel) and the other
# ($kernel, called $name); what PROGRAM wrote goes to $work/PREFIX-{stock,$name}.json.
# Where the accelerator leaves the host's CPUs free both kernels run at once.
boot_both() {
	local pre=$1 accel=$2 cpus=$3 cpio=$4 append= k reports

	# Emulated, the TSC is the host's, and its frequency cannot be calibrated; without it
	# the clock would be jiffies.
	[ "$accel" != tcg ] ||
		append+=$(awk -F': ' '/^cpu MHz/ { printf " tsc=reliable tsc_early_khz=%d", $2 * 1000; exit }' /proc/cpuinfo)
	boot_start "$pre-stock" "$stock_kernel" "$cpio" "$accel" "$cpus" "$vm_memory" $append
	[ "$accel" = icount ] || boot_wait "$pre-stock"
	boot_start "$pre-$name" "$kernel" "$cpio" "$accel" "$cpus" "$vm_memory" $append
	if [ "$accel" = icount ]; then boot_wait "$pre-stock" "$pre-$name"; else boot_wait "$pre-$name"; fi
	for k in stock "$name"; do
		sed '/^wf: end [0-9]*$/d' "$WF_LOG/$pre-$k.result" >"$work/$pre-$k.json"
		[ "$(job_status "$pre-$k")" -le 1 ] && [ -s "$work/$pre-$k.json" ] ||
			die "$k: $5 failed; last: \"$(boot_last "$pre-$k")\" (log: $(short "$WF_LOG/$pre-$k.console"))"
		reports=$(kernel_reports "$pre-$k") || continue
		say "NOTICE: $k: the kernel complained: $(head -n1 <<<"$reports") (log: $(short "$WF_LOG/$pre-$k.console"))"
	done
}
