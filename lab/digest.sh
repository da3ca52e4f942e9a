# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf test both/digest: the same random operations on stock and on ours, compared step by
# step: bytes, permissions, mincore() and the memory they take.

run_digest() {
	local k kernels=(digest-stock digest-ours) reports verdict rc=0

	series=ours
	series_build ours lab
	program_tests "$stock"
	scratch_in "$WF_BUILD"
	echo "${quick:+WF_QUICK=1 }/wf/checker --digest /dev/ttyS1" >"$scratch/job"
	initramfs "$scratch/initramfs" "$scratch/job" "$WF_BUILD/tests/checker"
	boot_start digest-stock "$stock/arch/x86/boot/bzImage" "$scratch/initramfs" "$accel" 1 1024
	boot_start digest-ours "$kernel" "$scratch/initramfs" "$accel" 1 1024
	boot_wait "${kernels[@]}"
	for k in "${kernels[@]}"; do
		if [ -n "${ended_badly[$k]-}" ]; then
			fail both/digest "${ended_badly[$k]}"
			return
		elif reports=$(kernel_reports "$k"); then
			fail both/digest "${k#*-}: $(head -n 1 <<<"$reports") (log: $(short "$WF_LOG/$k.console"))"
			return
		elif [ "$(job_status "$k")" != 0 ]; then
			fail both/digest "${k#*-}: $(grep -am1 '^# FOUND' "$WF_LOG/$k.console" | tr -d '\r' || echo "the checker failed") (log: $(short "$WF_LOG/$k.console"))"
			return
		fi
	done
	verdict=$(awk -f "$WF_TOP/lab/digest.awk" "$WF_LOG"/digest-{stock,ours}.result) || rc=$?
	if [ $rc = 0 ]; then
		pass && say "ok    both/digest: $verdict"
	else
		head -n 20 <<<"$verdict" | sed 's/^/  | /' >&2
		fail both/digest "$(wc -l <<<"$verdict") differences (logs: $(short "$WF_LOG/digest-stock.result"), …-ours.result)"
	fi
}
