# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The kernel's own mm selftests (its tools/testing/selftests/mm): built from the stock tree,
# run on stock and on ours, compared case by case. Not to be confused with selftest.sh.

# Name, minutes it may take, and the command, as run_vmtests.sh of that directory has them;
# a "q" marks what the short form has. A directory it asks for is a tmpfs.
kselftest_table() {
	cat <<-'END'
	cow                     15 q cow
	khugepaged              10 - khugepaged
	khugepaged-16k          10 - khugepaged -s 2
	khugepaged-shmem        10 - khugepaged all:shmem
	khugepaged-shmem-64k    10 - khugepaged -s 4 all:shmem
	khugepaged-mthp         10 - khugepaged -c 4 mthp_khugepaged:anon
	split_huge_page_test    15 - split_huge_page_test
	transhuge-stress         5 - transhuge-stress -d 20
	prctl_thp_disable        5 - prctl_thp_disable
	madv_populate            5 q madv_populate
	guard-regions           10 q guard-regions
	process_madv             5 q process_madv
	mremap_test             10 - mremap_test
	mremap_dontunmap         5 q mremap_dontunmap
	mkdirty                  5 q mkdirty
	soft-dirty               5 q soft-dirty
	pagemap_ioctl           10 - pagemap_ioctl
	pfnmap                   5 - pfnmap
	uffd-unit-tests         15 - uffd-unit-tests
	uffd-stress-anon        10 - uffd-stress anon 20 16
	uffd-stress-shmem       10 - uffd-stress shmem 20 16
	uffd-stress-private     10 - uffd-stress shmem-private 20 16
	uffd-stress-hugetlb     10 - uffd-stress hugetlb 128 32
	uffd-stress-hugetlb-p   10 - uffd-stress hugetlb-private 128 32
	uffd-wp-mremap          10 - uffd-wp-mremap
	ksm_functional_tests    10 q ksm_functional_tests
	ksm-time-huge           10 - ksm_tests -H -s 100
	ksm-time                10 - ksm_tests -P -s 100
	ksm-merge                5 - ksm_tests -M -p 10
	ksm-unmerge              5 - ksm_tests -U
	ksm-zero-0               5 - ksm_tests -Z -p 10 -z 0
	ksm-zero-1               5 - ksm_tests -Z -p 10 -z 1
	ksm-nodes-1              5 - ksm_tests -N -m 1
	ksm-nodes-0              5 - ksm_tests -N -m 0
	migration               10 - migration
	rmap                    10 - rmap
	merge                    5 q merge
	gup_test-fast-1          5 - gup_test -u -n 1
	gup_test-fast            5 - gup_test -u -n -1
	gup_test-pin-1           5 - gup_test -a -n 1
	gup_test-pin             5 - gup_test -a -n -1
	gup_test-dump            5 - gup_test -ct -F 0x1 0 19 0x1000
	gup_longterm            10 q gup_longterm
	compaction_test         10 - compaction_test
	on-fault-limit           5 - su-nobody on-fault-limit
	map_fixed_noreplace      5 - map_fixed_noreplace
	map_populate             5 q map_populate
	mlock-random-test        5 - mlock-random-test
	mlock2-tests             5 - mlock2-tests
	mrelease_test            5 - mrelease_test
	mdwe_test                5 - mdwe_test
	mseal_test               5 - mseal_test
	memfd_secret             5 - memfd_secret
	droppable                5 - droppable
	hmm-tests               20 - hmm-tests
	memory-failure          10 - memory-failure
	protection_keys         10 - protection_keys_64
	pkey_sighandler_tests    5 - pkey_sighandler_tests_64
	hugetlb-mmap             5 - hugetlb-mmap
	hugetlb-shm              5 - hugetlb-shm
	hugetlb-mremap           5 - hugetlb-mremap
	hugetlb-madvise          5 - hugetlb-madvise
	hugetlb_dio              5 - hugetlb_dio
	hugetlb_fault_after      5 - hugetlb_fault_after_madv
	hugetlb_madv_vs_map      5 - hugetlb_madv_vs_map
	thuge-gen                5 - thuge-gen
	hugetlb-soft-offline     5 - hugetlb-soft-offline
	hugetlb-read-hwpoison    5 - hugetlb-read-hwpoison
	folio_split_race_test   10 - folio_split_race_test
	END
}

# Their names, all or ("q") those of the short form.
kselftest_list() {
	kselftest_table | awk -v q="${1-}" 'q == "" || $3 == q { print $1 }'
}

# The program of each of the selftests $@.
kselftest_programs() {
	kselftest_table | awk -v names=" $* " 'index(names, " " $1 " ") { print $4 == "su-nobody" ? $5 : $4 }' | sort -u
}

# Build the programs of the selftests $@ from the tree $stock into $WF_BUILD/kselftest/bin.
# That tree stays as it is: the few files they need, and the interface headers, go into a
# copy beside them.
kselftest_build() {
	local dir=$WF_BUILD/kselftest log=$WF_LOG/build-kselftest.log missing=() f

	[ "$(cat "$dir/.wf-stock" 2>/dev/null)" = "${stock##*/}" ] || {
		rm -rf "$dir"
		scratch_in "$WF_BUILD"
		step "Preparing the kernel's own selftests" "$log" : kselftest_copy "$scratch" ||
			die "the kernel's own selftests cannot be prepared: $(why "$log") (log: $(short "$log"))"
		mv "$scratch" "$dir"
	}
	for f in $(kselftest_programs "$@"); do
		[ -x "$dir/bin/$f" ] || missing+=("$dir/bin/$f")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	needs_install libcap-dev libnuma-dev liburing-dev
	# No 32-bit libraries are asked for, so no program is built twice. Those that would be
	# heed no LDFLAGS.
	step "Building the kernel's own selftests" "$log" : make -C "$dir/src/tools/testing/selftests/mm" \
		-j"$(nproc)" OUTPUT="$dir/bin" ARCH=x86_64 LDFLAGS="-static -s" USERCFLAGS=-static CAN_BUILD_I386=0 "${missing[@]}" ||
		die "the kernel's own selftests do not build: $(why "$log") (log: $(short "$log"))"
}

kselftest_copy() {
	local selftests=tools/testing/selftests

	mkdir "$1/src" "$1/bin" && (
		cd "$stock"
		cp -a --parents Makefile Kbuild Kconfig scripts include/{uapi,asm-generic,vdso,Kbuild} \
			arch/x86/{Makefile*,Kbuild,include,entry/syscalls} usr/Makefile usr/include/{Makefile,headers_check.pl} \
			tools/{include,scripts} tools/arch/x86/include $selftests/{*.h,*.mk,mm,kselftest,x86,pidfd,clone3} \
			mm/gup_test.h lib/test_hmm_uapi.h "$1/src"
	) && kernel_make "$1/src" headers && echo "${stock##*/}" >"$1/.wf-stock"
}

# kselftest_job FACTOR NAME…: the job that runs them, each for so many times its minutes.
kselftest_job() {
	local factor=$1 name minutes quick program args

	shift
	cat <<-'END'
	mkdir -p /etc
	echo 'nobody:x:65534:65534::/tmp:/bin/sh' >/etc/passwd
	chmod 1777 /tmp /dev/shm
	echo 512M >/sys/block/zram0/disksize && mkswap /dev/zram0 >/dev/null && swapon /dev/zram0
	# Some start themselves again by ./NAME.
	cd /wf
	{
	END
	while read -r name minutes quick program args; do
		[[ " $* " = *" $name "* ]] || continue
		if [ "$program" = su-nobody ]; then
			program="su nobody -c /wf/$args" args=
		else
			program=/wf/$program
		fi
		printf 'echo "wf: run %s"; t=$(date +%%s)\n' "$name"
		printf 'timeout %d %s %s; echo "wf: exit $? $(($(date +%%s) - t))"\n' $((minutes * 60 * factor)) "$program" "$args"
		# What a program leaves behind is no business of the next one.
		printf 'rm -rf /tmp/*\n'
	done < <(kselftest_table)
	echo '} </dev/null >/dev/ttyS1 2>&1'
}

# Boot kernel image $2 as $1 with the selftests $3….
kselftest_start() {
	local name=$1 image=$2 programs

	shift 2
	kselftest_job "$time_factor" "$@" >"$work/$name.job"
	mapfile -t programs < <(kselftest_programs "$@")
	initramfs "$work/$name.cpio" "$work/$name.job" "${programs[@]/#/$WF_BUILD/kselftest/bin/}"
	boot_start "$name" "$image" "$work/$name.cpio" "$accel" "$cpus" "$vm_memory"
}

# kselftest_compare A B: both kernels' results, as tap.awk prints them, in one table:
# program, case, result in A, result in B, reason. Cases of one name are told apart by
# their number. Some names hold what was measured: cases that only one kernel has are
# the same if their names differ in figures alone.
kselftest_compare() {
	awk -F'\t' -v OFS='\t' '
		function figures_aside(key) {
			gsub(/0x[0-9a-f]+|[0-9.]+/, "#", key)
			return key
		}
		{
			key = $2 OFS $3
			n = ++seen[FILENAME, key]
			if (n > 1)
				key = key " (" n ")"
		}
		!(key in at) { at[key] = ++nr; keys[nr] = key }
		FILENAME == ARGV[1] { a[key] = $1; why_a[key] = $4; next }
		{ b[key] = $1; why_b[key] = $4 }
		END {
			for (k in b)
				if (!(k in a))
					alone[f = figures_aside(k), ++left[f]] = k
			for (i = 1; i <= nr; i++) {
				k = keys[i]
				f = figures_aside(k)
				if (k in a && !(k in b) && left[f]) {
					other = alone[f, left[f]--]
					b[k] = b[other]
					why_b[k] = why_b[other]
					delete b[other]
				} else if (!(k in a) && !(k in b)) {
					continue
				}
				print k, (k in a) ? a[k] : "none", (k in b) ? b[k] : "none", \
					b[k] != "pass" && why_b[k] != "" ? why_b[k] : why_a[k]
			}
		}' "$1" "$2"
}

# What the table on standard input says of program $1, as pass, skip or fail, how many, and
# what of: each case that stock passes and ours does not, the others summed up by reason.
kselftest_sum() {
	awk -F'\t' -v OFS='\t' -v program="$1" '
		$1 != program { next }
		$4 == "pass" { pass++; next }
		$3 == "pass" || ($4 == "fail" && $3 != "fail") || ($4 == "none" && $3 == "skip") {
			print "fail", 1, $2 ": stock: " $3 ", ours: " $4 ($5 == "" ? "" : ": " $5)
			next
		}
		{ n[($3 == "fail" ? "fail on stock too" : "skipped") ($5 == "" ? "" : ": " $5)]++ }
		END {
			if (pass)
				print "pass", pass
			for (why in n)
				print "skip", n[why], why
		}'
}

# Run the selftests $1… on the kernels in $stock and $tree, and report.
kselftest_run() {
	local k table=$WF_BUILD/kselftest.tsv program what n text

	kselftest_start kselftest-stock "$stock/arch/x86/boot/bzImage" "$@"
	kselftest_start "kselftest-$ours" "$kernel" "$@"
	boot_wait kselftest-stock "kselftest-$ours"
	for k in stock "$ours"; do
		awk -f "$WF_TOP/lab/tap.awk" "$WF_LOG/kselftest-$k.result" >"$work/kselftest-$k.cases" 2>/dev/null || :
	done
	{
		printf 'program\tcase\tstock\t%s\treason\n' "$ours"
		kselftest_compare "$work/kselftest-stock.cases" "$work/kselftest-$ours.cases"
	} >"$table"
	for program; do
		kselftest_sum "$program" <"$table" >"$work/sum"
		while IFS=$'\t' read -r what n text; do
			case $what in
			pass) passed=$((passed + n)) ;;
			skip) skipped=$((skipped + n)) && say "skip  kselftest/$program: $n $text" ;;
			fail) fail "kselftest/$program" "$text" ;;
			esac
		done <"$work/sum"
		[ -s "$work/sum" ] || fail "kselftest/$program" "did not run"
	done
	say "Case by case: $(short "$table")"
	check_console kselftest stock "$stock"
	check_console kselftest "$ours" "$tree"
}
