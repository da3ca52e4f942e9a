# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf test: everything that is tested; ends in "N passed, N failed, N skipped".

usage() {
	cat <<-'END'
	Usage: ./wf test [options] [NAME…]

	Runs what is tested: the lab itself (lab/…), the patches (kernel/…), the policies in
	user space, fuzzed for $WF_FUZZ_SECONDS each (policy/…), the programs of tests/ on
	stock and on ours in a virtual machine (stock/…, ours/…), the kernel's unit tests of
	ours (ours/kunit), random operations compared between the two (both/digest) and some
	of the kernel's own mm selftests, which must pass on ours wherever they pass on stock
	(kselftest/…). NAME is one of --list, or a pattern such as 'ours/*'.

	  --quick     shorter forms of what has one
	  --selftests all of the kernel's own mm selftests, and nothing else
	  --debug     the programs (or the selftests) on the debug kernel, kernel/config/debug,
	              with several CPUs; any report of the kernel fails the run
	  --kcsan     the programs on a kernel that looks for data races, kernel/config/kcsan;
	              one in a function of ours fails the run, those of stock are counted
	  --accel A   tcg (also "auto"), icount or kvm
	  --list      print the names

	Longer, and alone:
	  --soak H    the random-operation checker for H hours; goes on where the last ended
	  --mutants   the checker on kernels that each lack one guard (tests/mutants): it has
	              to find all of them. A NAME is MUTANT or MUTANT:PROGRAM then, or a
	              pattern; programs that have to fail on a mutant are known by its patch
	  --cpus N    of the virtual machine for these (2; --soak --debug 4)
	END
}

quick= debug= kcsan= selftests= list= soak= mutants= cpus= accel=auto names=()
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--quick) quick=1 ;;
	--debug) debug=1 ;;
	--kcsan) kcsan=1 ;;
	--selftests) selftests=1 ;;
	--list) list=1 ;;
	--accel) value "$@" && accel=$REPLY && shift ;;
	--soak) value "$@" && soak=$REPLY && shift ;;
	--mutants) mutants=1 ;;
	--cpus) value "$@" && cpus=$REPLY && shift ;;
	-*) bad_use "no such option: $1" ;;
	*) names+=("$1") ;;
	esac
	shift
done

# All programs in one boot take longer than one measurement, and the checks of a debug
# kernel many times as long. What hangs still says nothing for too long.
time_factor=1
[ -z "$debug$kcsan" ] || time_factor=8
# A selftest may say nothing for as long as it may take at all.
[ -z "$selftests" ] || WF_STALL=${WF_STALL:-$((1260 * time_factor))}
WF_STALL=${WF_STALL:-$((300 * (1 + time_factor / 4)))}
WF_TIMEOUT=${WF_TIMEOUT:-$((7200 * (1 + time_factor / 4)))}

. "$WF_TOP/lab/needs.sh"
. "$WF_TOP/lab/fetch.sh"
. "$WF_TOP/lab/patches.sh"
. "$WF_TOP/lab/build.sh"
. "$WF_TOP/lab/boot.sh"
. "$WF_TOP/lab/programs.sh"
. "$WF_TOP/lab/kselftest.sh"
. "$WF_TOP/lab/checkpatch.sh"
. "$WF_TOP/lab/digest.sh"

accel_resolve test
[ -n "$list" ] || needs_install

if [ -n "$soak" ]; then
	[ -z "$list" ] || bad_use "--soak runs the checker alone: there is no list"
	. "$WF_TOP/lab/soak.sh"
	if [ -n "$debug" ]; then soak "$soak" debug "${cpus:-4}"; else soak "$soak" lab "${cpus:-2}"; fi
	exit 0
elif [ -n "$mutants" ]; then
	. "$WF_TOP/lab/mutants.sh"
	if [ -n "$list" ]; then mutants_list "${names[@]}"; else mutants "${names[@]}"; fi
	exit
fi

# ---- which tests ---------------------------------------------------------------

programs=()
[ ! -f "$WF_TOP/tests/Makefile" ] || mapfile -t programs < <(make -s -C "$WF_TOP/tests" list)
all=()
if [ -n "$selftests" ]; then
	mapfile -t all < <(kselftest_list)
	all=("${all[@]/#/kselftest/}")
elif [ -n "$kcsan" ]; then
	all+=("${programs[@]/#/ours/}")
elif [ -n "$debug" ]; then
	all+=("${programs[@]/#/ours/}" ours/kunit)
	# What needs a debug kernel is run on stock too.
	all+=(stock/inject)
else
	mapfile -t all < <(sed -n 's/^t_\([a-z_]*\)() {.*/lab\/\1/p' "$WF_TOP/lab/selftest.sh")
	mapfile -t some < <(make -s -C "$WF_TOP/tests/policy" list)
	all+=(kernel/checkpatch kernel/mutants "${some[@]/#/policy/}" "${programs[@]/#/stock/}" "${programs[@]/#/ours/}" ours/kunit both/digest)
	mapfile -t some < <(kselftest_list q)
	all+=("${some[@]/#/kselftest/}")
fi

wanted=()
if [ ${#names[@]} = 0 ]; then
	wanted=("${all[@]}")
else
	for name in "${names[@]}"; do
		found=
		for t in "${all[@]}"; do
			# shellcheck disable=SC2053 # a pattern is meant
			[[ $t = $name ]] && wanted+=("$t") && found=1
		done
		[ -n "$found" ] || bad_use "no test \"$name\"; --list prints them"
	done
fi
if [ -n "$list" ]; then
	printf '%s\n' "${wanted[@]}"
	exit 0
fi

# What of $wanted begins with $1, without that.
wanted_of() {
	printf '%s\n' "${wanted[@]}" | sed -n "s,^$1/,,p"
}

# ---- results -------------------------------------------------------------------

passed=0 failed=0 skipped=0

pass() { passed=$((passed + 1)); }
fail() {
	failed=$((failed + 1))
	say "FAIL  $1${2:+: $2}"
}
skip() {
	skipped=$((skipped + 1))
	say "skip  $1: $2"
}

# Count what the kernel $1 wrote for its tests, of which $2… were to run.
count_results() {
	local kernel=$1 what program case reason p f s

	shift
	awk -f "$WF_TOP/lab/tap.awk" "$WF_LOG/test-$kernel.result" >"$work/$kernel.cases" 2>/dev/null || :
	for program; do
		p=0 f=0 s=0
		while IFS=$'\t' read -r what _ case reason; do
			case $what in
			pass) pass && p=$((p + 1)) ;;
			fail) fail "$kernel/$program: $case" "$reason" && f=$((f + 1)) ;;
			skip) skip "$kernel/$program: $case" "${reason:-says no reason}" && s=$((s + 1)) ;;
			esac
		done < <(awk -F'\t' -v p="$program" '$2 == p' "$work/$kernel.cases")
		if [ $((p + f + s)) = 0 ]; then
			fail "$kernel/$program" "did not run"
		else
			say "$([ $f = 0 ] && echo 'ok  ' || echo 'FAIL')  $kernel/$program: $p passed, $f failed, $s skipped"
		fi
	done
}

# ---- the lab and the patches -----------------------------------------------------

run_lab_test() {
	local rc=0 log=$WF_LOG/selftest-$1.log start=$SECONDS

	step "lab/$1" "$log" : env ${quick:+WF_QUICK=1} bash "$WF_TOP/lab/selftest.sh" "$1" || rc=$?
	case $rc in
	0) pass && say "ok    lab/$1  $(since $start)" ;;
	77) skip "lab/$1" "$(tail -n 1 "$log")" ;;
	*) fail "lab/$1" "$(tail -n 1 "$log") (log: $(short "$log"))" ;;
	esac
}

# Our series in the scratch tree $stage.
stage_ours() {
	stock_build lab
	series=ours
	series_stage "$stock"
}

# checkpatch has nothing to say about any patch of ours.
run_checkpatch() {
	local log=$WF_LOG/checkpatch.log

	stage_ours
	git -C "$stage" format-patch -q -o "$stage/.out" stock
	if checkpatch "$stock" "$log" "$stage"/.out/*.patch; then
		pass && say "ok    kernel/checkpatch"
	else
		sed 's/^/  /' "$log" | head -n 20 >&2
		fail kernel/checkpatch "$(wc -l <"$log") remarks (log: $(short "$log"))"
	fi
}

# A mutant that does not fit the kernel any more guards nothing.
run_mutants_fit() {
	local f unfit=

	stage_ours
	for f in "$WF_TOP"/tests/mutants/*.patch; do
		git -C "$stage" apply --check "$f" 2>/dev/null || unfit+=" $(basename "$f" .patch)"
	done
	if [ -z "$unfit" ]; then
		pass && say "ok    kernel/mutants"
	else
		fail kernel/mutants "do not apply to the patched kernel:$unfit"
	fi
}

# The policies in user space: write patterns are played against them, or a fuzzer.
run_policy_test() {
	local log=$WF_LOG/policy-$1.log start=$SECONDS goal=$1 clang

	mkdir -p "$WF_LOG" "$WF_BUILD/policy"
	[ "$goal" != play ] || goal=check
	if [ "$1" != play ] && ! clang=$(clang_with_fuzzer); then
		skip "policy/$1" "no clang with libFuzzer (Debian: clang and libclang-rt-*-dev)"
	elif step "policy/$1" "$log" : make -C "$WF_TOP/tests/policy" "$goal" O="$WF_BUILD/policy" CLANG="${clang-}" \
		FUZZ_SECONDS="${WF_FUZZ_SECONDS:-$([ -n "$quick" ] && echo 15 || echo 60)}"; then
		pass && say "ok    policy/$1  $(since $start)$(sed -n 's/^stat::number_of_executed_units: */, runs: /p' "$log")"
	else
		fail "policy/$1" "$(grep -m1 -E 'must hold|FAILED|ERROR:|rror:' "$log" || tail -n 1 "$log") (log: $(short "$log"))"
	fi
}

# Print the name of a clang that links libFuzzer.
clang_with_fuzzer() {
	local c

	for c in clang clang-19 clang-16 clang-14; do
		if echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return 0; }' |
			$c -fsanitize=fuzzer,address,undefined -x c -o "$WF_BUILD/policy/try" - 2>/dev/null; then
			echo $c
			return 0
		fi
	done
	return 1
}

# ---- the programs in virtual machines --------------------------------------------

# A kernel that ends badly fails what it was running; the others go on.
boot_failed() {
	ended_badly[$1]=$2
}
declare -A ended_badly

test_job() {
	local file=$1 t

	shift
	{
		[ -z "$quick" ] || echo 'export WF_QUICK=1'
		echo "export WF_TIME_FACTOR=$time_factor"
		echo '{'
		for t; do
			echo "echo 'wf: run $t'"
			if [ "$t" = kunit ]; then
				echo 'cat /sys/kernel/debug/kunit/*/results 2>/dev/null || echo "this kernel has no unit tests"'
				echo 'echo "wf: exit 0"'
			else
				echo "timeout ${WF_PROGRAM_TIMEOUT:-$((900 * time_factor))} /wf/$t; echo \"wf: exit \$?\""
			fi
		done
		echo '} </dev/null >/dev/ttyS1 2>&1'
	} >"$file"
}

# Boot kernel image $2 as test-$1 with the tests $3….
test_start() {
	local name=$1 image=$2 t files=() append=

	shift 2
	for t; do
		[ "$t" = kunit ] && append=kunit.enable=1 || files+=("$WF_BUILD/tests/$t")
	done
	test_job "$work/job-$name" "$@"
	initramfs "$work/$name.cpio" "$work/job-$name" "${files[@]}"
	boot_start "test-$name" "$image" "$work/$name.cpio" "$accel" "$cpus" "$vm_memory" $append
}

# Any report of the kernel on its console (kernel $2 with tree $3, booted as $1-$2) is a failure.
check_console() {
	local boot=$1-$2 tree=$3 name=$2/console reports

	[ "$1" = test ] || name=$1/$name
	kernel_reports_known "$boot"
	[ -z "${ended_badly[$boot]-}" ] || fail "$name" "${ended_badly[$boot]}"
	if reports=$(kernel_reports "$boot"); then
		fail "$name" "$(wc -l <<<"$reports") reports of the kernel (log: $(short "$WF_LOG/$boot.console"))"
		kernel_report_show "$boot" "$tree" >&2
	elif [ -z "${ended_badly[$boot]-}" ]; then
		pass
	fi
}

run_programs() {
	local on_stock on_ours selftests config=lab booted=()

	mapfile -t on_stock < <(wanted_of stock)
	mapfile -t on_ours < <(wanted_of ours)
	mapfile -t selftests < <(wanted_of kselftest)
	[ $((${#on_stock[@]} + ${#on_ours[@]} + ${#selftests[@]})) -gt 0 ] || return 0
	cpus=2 vm_memory=${WF_VM_MEMORY:-2048}
	ours=ours
	if [ -n "$debug" ]; then
		config=debug ours=debug cpus=4 vm_memory=${WF_VM_MEMORY:-4096}
	elif [ -n "$kcsan" ]; then
		config=kcsan ours=kcsan cpus=4 vm_memory=${WF_VM_MEMORY:-3072}
	fi
	[ "$accel" != icount ] || cpus=1
	series=ours
	if [ $((${#on_ours[@]} + ${#selftests[@]})) -gt 0 ]; then series_build $ours $config; else stock_build $config; fi
	scratch_in "$WF_BUILD"
	work=$scratch
	[ ${#selftests[@]} = 0 ] || kselftest_build "${selftests[@]}"
	[ $((${#on_stock[@]} + ${#on_ours[@]})) = 0 ] || program_tests "$stock"
	if [ ${#on_stock[@]} -gt 0 ]; then
		test_start stock "$stock/arch/x86/boot/bzImage" "${on_stock[@]}"
		booted+=(test-stock)
	fi
	if [ ${#on_ours[@]} -gt 0 ]; then
		test_start $ours "$kernel" "${on_ours[@]}"
		booted+=("test-$ours")
	fi
	[ ${#booted[@]} = 0 ] || boot_wait "${booted[@]}"
	if [ ${#on_stock[@]} -gt 0 ]; then
		count_results stock "${on_stock[@]}"
		check_console test stock "$stock"
	fi
	if [ ${#on_ours[@]} -gt 0 ]; then
		count_results $ours "${on_ours[@]}"
		[ -z "$kcsan" ] || kernel_ours=$(kernel_functions "$tree")
		check_console test $ours "$tree"
		[ -z "$kcsan" ] || say "Data races: $(grep -ac 'BUG: KCSAN:' "$WF_LOG/test-$ours.console") reports, those of stock included"
	fi
	[ ${#selftests[@]} = 0 ] || kselftest_run "${selftests[@]}"
}

started=$SECONDS
while read -r t; do
	[ -z "$t" ] || run_lab_test "$t"
done < <(wanted_of lab)
[[ " ${wanted[*]} " != *" kernel/checkpatch "* ]] || run_checkpatch
[[ " ${wanted[*]} " != *" kernel/mutants "* ]] || run_mutants_fit
while read -r t; do
	[ -z "$t" ] || run_policy_test "$t"
done < <(wanted_of policy)
run_programs
[[ " ${wanted[*]} " != *" both/digest "* ]] || run_digest

say "Took $(since $started)"
printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed = 0 ] || exit 1
