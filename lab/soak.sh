# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf test --soak: the random-operation checker for hours, on one kernel in one boot. Every
# seed is run once: a later call goes on where this one ended, however it ended.

# Run it for $1 hours on our kernel of configuration $2 (lab or debug) with $3 CPUs.
soak() {
	local hours=$1 config=$2 seconds name=ours memory=1024 lock

	seconds=$(awk -v h="$hours" 'BEGIN { if (h !~ /^[0-9]*\.?[0-9]+$/ || h * 3600 < 1) exit 1; printf "%d", h * 3600 }') ||
		bad_use "--soak: \"$hours\" is no number of hours"
	[ "$config" = lab ] || name=$config memory=3072
	mkdir -p "$WF_BUILD"
	soak_state=$WF_BUILD/soak-$name
	exec {lock}>"$soak_state.lock"
	flock -n "$lock" || die "a soak of this kernel is at work already"
	series=ours
	series_build "$name" "$config"
	program_tests "$stock"
	soak_load

	scratch_in "$WF_BUILD"
	echo "/wf/checker --soak --seed $soak_seed </dev/null >/dev/ttyS1 2>&1" >"$scratch/job"
	initramfs "$scratch/initramfs" "$scratch/job" "$WF_BUILD/tests/checker"
	WF_TIMEOUT=$((seconds + 600))
	boot_start "soak-$name" "$kernel" "$scratch/initramfs" "$accel" "$3" "${WF_VM_MEMORY:-$memory}"
	soak_watch "soak-$name" "$seconds"
}

# $soak_seed, $soak_ops and $soak_seconds: the next seed, what was done before it.
soak_load() {
	soak_seed=1 soak_ops=0 soak_seconds=0
	[ ! -f "$soak_state" ] || read -r soak_seed soak_ops soak_seconds <"$soak_state"
}

# Take down how far kernel $1 has come since it was started. What it was in the middle of
# is not counted, and done again.
soak_note() {
	local line ops seed

	line=$(grep -a '^# progress: ' "$WF_LOG/$1.result" 2>/dev/null | tail -n 1) || :
	# "# progress: OPS ops, RATE ops/s, next seed SEED"
	read -r _ _ ops _ _ _ _ _ seed <<<"$line"
	[ -n "${seed-}" ] || return 0
	soak_now_seed=${seed%$'\r'} soak_now_ops=$ops
	echo "$soak_now_seed $((soak_ops + ops)) $((soak_seconds + SECONDS - boot_from[$1]))" >"$soak_state.new"
	mv "$soak_state.new" "$soak_state"
}

# Let kernel $1 run for $2 seconds, or until the first thing that is wrong. Its own clock
# may be wrong on a busy machine.
soak_watch() {
	local name=$1 seen=$SECONDS size last= start=$SECONDS

	soak_now_seed=$soak_seed soak_now_ops=0
	while alive "${boot_pid[$name]}" && [ $((SECONDS - start)) -lt "$2" ]; do
		soak_note "$name"
		progress "$(since "$start")  $soak_now_ops operations, $((soak_ops + soak_now_ops)) with those before; next seed $soak_now_seed"
		! kernel_reports "$name" >/dev/null 2>&1 || soak_failed "$name" "a report of the kernel"
		size=$(stat -c %s "$WF_LOG/$name".{console,result} 2>/dev/null | paste -sd+) || :
		[ "$size" = "$last" ] || last=$size seen=$SECONDS
		# many times what a test has: it may run beside everything else
		[ $((SECONDS - seen)) -lt $((6 * WF_STALL)) ] || soak_failed "$name" "the kernel hangs"
		sleep 2
	done
	progress_clear
	soak_note "$name"
	if ! alive "${boot_pid[$name]}"; then
		soak_failed "$name" "$(grep -am1 '^# FOUND\|^# threads:.*must be\|^not ok\|^Bail' "$WF_LOG/$name.result" || boot_last "$name")"
	fi
	kill -TERM -- "-${boot_pid[$name]}" 2>/dev/null || :
	reap "${boot_pid[$name]}" || :
	kernel_reports_known "$name"
	say "ok    $soak_now_ops operations in $(since "$start"), seeds $soak_seed to $((soak_now_seed - 1)): no wrong byte, no report"
	soak_load
	say "      $soak_ops operations in all, $((soak_seconds / 60)) minutes; the next call begins with seed $soak_seed"
}

# The logs stay, under the seed at which it was found: the next run writes new ones.
soak_failed() {
	local keep=$WF_BUILD/soak-found-$soak_now_seed f

	sleep 2
	for f in console result; do cp "$WF_LOG/$1.$f" "$keep.$f"; done
	say "FAIL  after $soak_now_ops operations from seed $soak_seed: $2"
	kernel_reports "$1" >/dev/null 2>&1 && kernel_report_show "$1" "$tree" >&2
	die "the sequence and a program for it are in $(short "$keep.result"), the console in $(short "$keep.console")"
}
