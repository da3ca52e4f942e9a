# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The programs beside the kernels: folio-measure, the tests, the report.

# folio-measure, static, as $1/folio-measure.
program_measure() {
	program_make measure measure && cp "$WF_BUILD/measure/folio-measure" "$1/" || die "cannot write to $(short "$1")"
}

# The test programs, against the headers of the kernel tree $1.
program_tests() {
	program_make tests tests KSRC="$1"
}

# What becomes of results, a table and a page, built when a source is newer.
program_report() {
	local p f

	for p in report html; do
		for f in "$WF_TOP/lab/$p.c" "$WF_TOP"/lab/rows.[ch]; do
			[ "$WF_BUILD/$p" -nt "$f" ] || break
		done
		[ ! "$WF_BUILD/$p" -nt "$f" ] || continue
		gcc -D_GNU_SOURCE -O2 -o "$WF_BUILD/$p.tmp" "$WF_TOP/lab/$p.c" "$WF_TOP/lab/rows.c" -ljansson -lm &&
			mv "$WF_BUILD/$p.tmp" "$WF_BUILD/$p" || die "lab/$p.c does not compile"
	done
}

# report_write FILE [--set NAME=TEXT]… RESULT…: print the table of what was measured on the kernels of
# $stock and $tree, and write it to FILE with how it was measured; fails as build/report does.
report_write() {
	local out=$1

	shift
	"$WF_BUILD/report" --out "$out" --accel "$accel" \
		--set base="$(tree_version "$stock" | cut -d+ -f1)" --set base_version="$source_version" \
		--set date="$(date -u +%FT%TZ)" --set qemu="$(qemu-system-x86_64 --version | sed -n 's/.*version \([^ ]*\).*/\1/p')" \
		--set compiler="$(gcc --version | head -n1)" --set vm_memory_mib="$vm_memory" \
		--set config_sha256="$(sha256 "$tree/.config")" "$@"
}

# program_make DIRECTORY OUT [VARIABLE…]
program_make() {
	local log=$WF_LOG/build-$1.log dir=$1 out=$2

	shift 2
	mkdir -p "$WF_BUILD/$out"
	step "Building $dir/" "$log" : make -C "$WF_TOP/$dir" -j"$(nproc)" O="$WF_BUILD/$out" "$@" ||
		die "$dir/ does not build: $(why "$log") (log: $(short "$log"))"
}
