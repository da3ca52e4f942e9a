# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# scripts/checkpatch.pl --strict, and what of its remarks is not heeded, with the reason.

# Files, types of remark (both extended regular expressions), why they are wrong there.
checkpatch_wrong() {
	cat <<-'END'
	.* FILE_PATH_CHANGES whose section of MAINTAINERS new files belong to is the maintainers' to say
	include/trace/events/.* PARENTHESIS_ALIGNMENT|OPEN_ENDED_LINE TP_PROTO and its kin are laid out so in every header of tracepoints
	tools/testing/selftests/.* PREFER_KERNEL_TYPES|VOLATILE|BIT_MACRO|PREFER_DEFINED_ATTRIBUTE_MACRO programs: these are the kernel's, and a volatile access is one that must happen
	tools/testing/selftests/.* MACRO_WITH_FLOW_CONTROL|EMBEDDED_FUNCTION_NAME a case that fails returns, and its messages are English
	END
}

# checkpatch TREE LOG PATCH…: the script of TREE on the patches. LOG gets the remarks to
# heed, LOG.wrong those that are not, each kind with its reason. Fails if LOG is not empty.
checkpatch() {
	local tree=$1 log=$2 rc=0

	shift 2
	mkdir -p "${log%/*}"
	# In a git tree it asks spdxcheck.py too, whose modules are those of Debian's python3.
	(cd "$tree" && PATH=/usr/bin:$PATH scripts/checkpatch.pl --strict --no-signoff --quiet --no-summary --terse \
		--showfile --show-types "$@") >"$log.all" 2>&1 || rc=$?
	[ $rc -le 1 ] || die "checkpatch.pl fails: $(why "$log.all") (log: $(short "$log.all"))"
	checkpatch_wrong | awk -v wrong="$log.wrong" '
		FNR == NR { files[++n] = "^" $1 ":"; types[n] = ":(" $2 "):"; $1 = $2 = ""; why[n] = $0; next }
		{ for (i = 1; i <= n && !($0 ~ files[i] && $0 ~ types[i]); i++) ; }
		i > n { print; next }
		{ sub(/:[0-9]+:/, ":"); seen[i "  " $0]++ }
		END { printf "" >wrong; for (s in seen) { i = s + 0; sub(/^[0-9]+  /, "", s); print s "\n   " why[i] >wrong } }
	' - "$log.all" >"$log"
	rm -f "$log.all"
	[ ! -s "$log" ]
}
