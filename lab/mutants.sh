# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf test --mutants: are the tests any good? Each patch of tests/mutants takes one guard out
# of the patched kernel; what its first lines say fails on it has to fail on it:
#
#   # Seen to fail: PROGRAM, …	a program of tests/, or kunit
#   # Checker: …	the random-operation checker, within $WF_MUTANT_SECONDS

WF_MUTANT_SECONDS=${WF_MUTANT_SECONDS:-300}

# "MUTANT PROGRAM" for each trial that the patterns $@, MUTANT or MUTANT:PROGRAM, name;
# without any, the checker on all that it has to find.
mutants_named() {
	local f name program pattern

	[ $# -gt 0 ] || set -- '*:checker'
	for f in "$WF_TOP"/tests/mutants/*.patch; do
		name=$(basename "$f" .patch)
		sed -n 's/^# Seen to fail: \([a-z_]*\).*/\1/p; s/^# Checker: .*/checker/p' "$f" | while read -r program; do
			for pattern; do
				# shellcheck disable=SC2053 # a pattern is meant
				if [[ $name = $pattern || $name:$program = $pattern ]]; then
					echo "$name $program"
					break
				fi
			done
		done
	done
}

# Set $trials to what mutants_named prints for $@; end if that is nothing.
mutants_find() {
	mapfile -t trials < <(mutants_named "$@")
	[ ${#trials[@]} -gt 0 ] || bad_use "no such mutant in tests/mutants: $*"
}

# Print the trials that $@ name, as names.
mutants_list() {
	local trials

	mutants_find "$@"
	printf '%s\n' "${trials[@]/ /:}"
}

mutants() {
	local trials trial name program built='' failed=0 start=$SECONDS

	mutants_find "$@"
	stock_build lab
	program_tests "$stock"
	scratch_in "$WF_BUILD"
	work=$scratch
	for trial in "${trials[@]}"; do
		read -r name program <<<"$trial"
		mutant=$WF_TOP/tests/mutants/$name.patch
		series=ours
		[ "$built" = "$name" ] || series_build mutant lab
		built=$name
		mutant_try "$name" "$program" || failed=$((failed + 1))
	done
	say "Took $(since "$start")"
	printf '%d found, %d not found\n' $((${#trials[@]} - failed)) $failed
	[ $failed = 0 ]
}

# Boot mutant $1 with $2, which has to find it.
mutant_try() {
	local name=$1 program=$2 found start=$SECONDS limit=900 files=("$WF_BUILD/tests/$2") append=

	{
		case $program in
		checker) echo "/wf/checker --soak --no-shrink" && limit=$WF_MUTANT_SECONDS ;;
		kunit) echo 'cat /sys/kernel/debug/kunit/*/results' && files=() append=kunit.enable=1 ;;
		*) echo "/wf/$program" ;;
		esac
	} >"$work/program"
	{
		echo "{ echo 'wf: run $program'"
		cat "$work/program"
		echo "echo \"wf: exit \$?\"; } </dev/null >/dev/ttyS1 2>&1"
	} >"$work/job"
	initramfs "$work/initramfs" "$work/job" "${files[@]}"
	boot_start mutant "$kernel" "$work/initramfs" "$accel" "${cpus:-2}" "${WF_VM_MEMORY:-1024}" $append
	# The first word that something is wrong is enough.
	while alive "${boot_pid[mutant]}"; do
		if mutant_found >/dev/null || [ $((SECONDS - start)) -ge "$limit" ]; then
			kill -TERM -- "-${boot_pid[mutant]}" 2>/dev/null || :
			break
		fi
		progress "$name: $program $(since "$start")  $(boot_last mutant)"
		sleep 0.5
	done
	progress_clear
	reap "${boot_pid[mutant]}" || :
	if found=$(mutant_found); then
		say "ok    $name: $program, $(since "$start"): $found"
	else
		cp "$WF_LOG/mutant.result" "$WF_LOG/mutant-$name-$program.result"
		say "FAIL  $name: $program did not find it in $(since "$start") (log: $(short "$WF_LOG/mutant-$name-$program.result"))"
		return 1
	fi
}

# What the kernel that runs as "mutant" or its program said first that is wrong.
mutant_found() {
	{
		kernel_reports mutant | cut -d: -f2- | sed 's/^\[[^]]*\] //'
		grep -ahE '^# FOUND|^# threads: .*must be|^ *not ok' "$WF_LOG/mutant.result"
		grep -am1 'Kernel panic' "$WF_LOG/mutant.console" || :
	} 2>/dev/null | head -n 1 | tr -d '\r' | cut -c1-160 | grep .
}
