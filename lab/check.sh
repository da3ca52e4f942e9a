# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf check: is the series fit to be sent? Every patch of it is checked by itself.

usage() {
	cat <<-'END'
	Usage: ./wf check [--patch NAME] [--only CHECK,…]

	Checks every patch of kernel/series in turn, on top of those before it, and prints a
	table of patches and checks. Installs the compilers and tools that it needs.

	  checkpatch  scripts/checkpatch.pl --strict has nothing to say
	  build       the kernel builds, and the tests that the patch brings
	  boot        it boots by itself, its unit tests pass, it reports nothing
	  w1          no warning with W=1 that stock does not have
	  sparse      none of sparse
	  clang       none of clang with W=1
	  arm64       none of gcc for arm64 with W=1
	  kdoc        kernel-doc understands the comments of all new files

	  --patch NAME    only this patch, a name of kernel/series; those before it are applied
	  --only CHECK,…  only these checks
	END
}

checks=(checkpatch build boot w1 sparse clang arm64 kdoc)
only='' patch=''
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--patch) value "$@" && patch=$REPLY && shift ;;
	--only) value "$@" && only=$REPLY && shift ;;
	*) bad_use "no such option: $1" ;;
	esac
	shift
done

. "$WF_TOP/lab/needs.sh"
. "$WF_TOP/lab/fetch.sh"
. "$WF_TOP/lab/patches.sh"
. "$WF_TOP/lab/build.sh"
. "$WF_TOP/lab/boot.sh"
. "$WF_TOP/lab/checkpatch.sh"

for c in ${only//,/ }; do
	[[ " ${checks[*]} " = *" $c "* ]] || bad_use "--only: no check \"$c\"; there are: ${checks[*]}"
done
mapfile -t names < <(series_lines | cut -d' ' -f1)
[ -z "$patch" ] || [[ " ${names[*]} " = *" $patch "* ]] ||
	bad_use "--patch: no patch \"$patch\"; there are: ${names[*]}"
[ -z "$only" ] || mapfile -t checks < <(printf '%s\n' ${only//,/ })

wants() {
	[[ " ${checks[*]} " = *" $1 "* ]]
}

needs_install
packages=()
! wants sparse || packages+=(sparse)
! wants clang || packages+=(clang-19 llvm-19 lld-19)
! wants arm64 || packages+=(gcc-aarch64-linux-gnu)
! wants kdoc || packages+=(python3)
[ ${#packages[@]} = 0 ] || needs_install "${packages[@]}"

# ---- results: one cell per patch and check -----------------------------------------

declare -A cell
bad=0

# cell_bad PATCH CHECK TEXT LOG
cell_bad() {
	cell[$1/$2]=$3
	bad=$((bad + 1))
	say "$1: $2: $3 (log: $(short "$4"))"
	grep -aE -m12 'warning:|error:|Warning:|Error [0-9]|CHECK:|WARNING:|ERROR:|not ok' "$4" | cut -c1-200 | sed 's/^/  /' >&2 || :
}

table() {
	local name c

	printf '%-12s%s\n' patch "$(printf ' %-10s' "${checks[@]}" | sed 's/ *$//')"
	for name in "${wanted[@]}"; do
		printf '%-12s' "$name"
		for c in "${checks[@]}"; do printf ' %-10s' "${cell[$name/$c]:--}"; done
		printf '\n'
	done | sed 's/ *$//'
}

# ---- trees: one that is built and booted, one whose objects lie apart, per compiler --

# Make the tree $1 what the commit $2 of the series is.
check_tree() {
	tree=$1
	git -C "$stage" checkout -q -f "$2"
	tree_update
}

# The tree that is built: a copy of the stock objects.
tree_built() {
	tree=$WF_BUILD/linux-check
	stock_copy
}

# The tree that is only compiled, in directories beside it.
tree_plain() {
	tree=$WF_BUILD/check/linux
	[ "$(cat "$tree/.wf-stock" 2>/dev/null)" != "${stock##*/}" ] || return 0
	rm -rf "$WF_BUILD/check"
	scratch_in "$WF_BUILD"
	source_unpack "$scratch"
	echo "${stock##*/}" >"$scratch/.wf-stock"
	mkdir -p "$WF_BUILD/check"
	mv "$scratch" "$tree"
}

# What make is told for check $1.
compiler() {
	case $1 in
	w1) make_args=(W=1) ;;
	# What sparse 0.6.4 does not know: a keyword, for want of which the kernel refuses it,
	# and the length of a constant string, which each MODULE_LICENSE() asserts.
	sparse) make_args=(C=1 "CF=-D__typeof_unqual__=__typeof__ '-D__builtin_strlen(s)=(sizeof(s) - 1)'") ;;
	clang) make_args=(LLVM=-19 W=1) ;;
	arm64) make_args=(ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- W=1) ;;
	esac
	objects=$WF_BUILD/check/$1
	make_args+=(O="$objects")
}

config_objects() {
	local fragments

	mapfile -t fragments < <(config_fragments "$1")
	{ [ -f "$objects/.config" ] || kernel_make "$tree" "${make_args[@]}" tinyconfig; } &&
		(cd "$tree" && scripts/kconfig/merge_config.sh -m -O "$objects" "$objects/.config" "${fragments[@]}") &&
		kernel_make "$tree" "${make_args[@]}" olddefconfig
}

# Warnings of a log, without the line numbers, which move.
warnings() {
	{ grep -aE 'warning:|error:|Warning:|Error:' "$1" || :; } | sed -E "s,^$tree/,,; s/:[0-9]+(:[0-9]+)?:/:/" | sort -u
}

# Compile what the series touches, at commit $2, with the compiler of check $1. What
# warns on "stock", the first commit, is no fault of a patch.
check_compile() {
	local check=$1 name=$2 log=$WF_LOG/check-$1-$2.log config=lab f files=() rc=0

	compiler "$check"
	mkdir -p "$objects"
	[ "$check" != arm64 ] || config=arm64
	while read -r f; do
		[ ! -f "$tree/$f" ] || files+=("${f%.c}.o")
	done < <(git -C "$stage" diff --name-only --no-renames stock "$top" | sed -n '/^tools/d; /\.c$/p')
	# What was compiled by an earlier run would not warn again.
	(cd "$objects" && rm -f "${files[@]}")
	if [ "$name" = stock ] || ! config_same "$config"; then
		step "Configuring for $check" "$WF_LOG/check-$check-config.log" : config_objects "$config" ||
			die "$check: cannot be configured: $(why "$WF_LOG/check-$check-config.log") (log: $(short "$WF_LOG/check-$check-config.log"))"
		config_inputs "$config" >"$objects/.wf-config"
	fi
	step "$name: $check" "$log" : kernel_make "$tree" -k "${make_args[@]}" "${files[@]}" || rc=$?
	! grep -q 'specified, but .* is not available' "$log" || die "$check: the kernel does not take this sparse (log: $(short "$log"))"
	if [ "$name" = stock ]; then
		warnings "$log" >"$objects/.wf-stock"
		[ $rc = 0 ] || die "$check: stock does not compile (log: $(short "$log"))"
		return
	fi
	warnings "$log" | comm -13 "$objects/.wf-stock" - >"$log.new"
	if [ $rc != 0 ]; then
		cell_bad "$name" "$check" "fails" "$log"
	elif [ -s "$log.new" ]; then
		cell_bad "$name" "$check" "$(wc -l <"$log.new") new" "$log.new"
	else
		cell[$name/$check]=ok
	fi
}

# The configuration's sources, as they are in $tree: does it have to be made anew?
config_inputs() {
	local fragments

	mapfile -t fragments < <(config_fragments "$1")
	{
		cat "${fragments[@]}"
		git -C "$stage" diff --name-only --no-renames stock "$top" | grep Kconfig | sed "s,^,$tree/," | xargs -r -d '\n' cat
	} | sha256sum
}

config_same() {
	[ "$(config_inputs "$1")" = "$(cat "$objects/.wf-config" 2>/dev/null)" ]
}

# ---- the other checks ----------------------------------------------------------------

check_checkpatch() {
	local log=$WF_LOG/check-checkpatch-$1.log p=$stage/.out/$1.patch

	mkdir -p "$stage/.out"
	git -C "$stage" format-patch -q -1 --stdout "$2" >"$p"
	if checkpatch "$stock" "$log" "$p"; then
		cell[$1/checkpatch]=ok
		cat "$log.wrong" >>"$unheeded"
	else
		cell_bad "$1" checkpatch "$(wc -l <"$log") remarks" "$log"
	fi
}

check_build() {
	local log=$WF_LOG/check-build-$1.log dir

	tree_configure lab
	step "$1: build" "$log" : kernel_make "$tree" bzImage || {
		cell_bad "$1" build fails "$log"
		return 1
	}
	for dir in $(git -C "$stage" diff --name-only --diff-filter=A "$2~" "$2" | sed -n 's,^\(tools/testing/.*\)/Makefile$,\1,p'); do
		step "$1: $dir" "$log" : build_selftests "$dir" || {
			cell_bad "$1" build "tests fail" "$log"
			return 1
		}
		! warnings "$log" | grep -q . || {
			cell_bad "$1" build "tests warn" "$log"
			return 1
		}
	done
	cell[$1/build]=ok
}

build_selftests() {
	kernel_make "$tree" headers && kernel_make "$tree/$1" all
}

boot_failed() {
	ended_badly=$2
}

check_boot() {
	local log=$WF_LOG/check-$1.console

	cat >"$scratch/job" <<-'END'
	uname -a
	grep -h "^not ok" /sys/kernel/debug/kunit/*/results && exit 1
	exit 0
	END
	ended_badly=
	initramfs "$scratch/cpio" "$scratch/job"
	boot_start "check-$1" "$tree/arch/x86/boot/bzImage" "$scratch/cpio" tcg 2 1024 kunit.enable=1
	boot_wait "check-$1"
	if [ -n "$ended_badly" ]; then
		cell_bad "$1" boot "$ended_badly" "$log"
		cell[$1/boot]=fails
	elif [ "$(job_status "check-$1")" != 0 ]; then
		cell_bad "$1" boot "unit tests" "$log"
	elif kernel_reports "check-$1" >/dev/null; then
		cell_bad "$1" boot reports "$log"
	else
		cell[$1/boot]=ok
	fi
}

check_kdoc() {
	local log=$WF_LOG/check-kdoc-$1.log files

	mapfile -t files < <(git -C "$stage" diff --name-only --diff-filter=A "$2~" "$2" | sed -n '/^tools/d; /\.[ch]$/p')
	cell[$1/kdoc]=ok
	[ ${#files[@]} = 0 ] || (cd "$stage" && python3 "$stock/scripts/kernel-doc" -none -Wall -Werror "${files[@]}") >"$log" 2>&1 ||
		cell_bad "$1" kdoc "$(grep -c Warning "$log") remarks" "$log"
}

# ---- patch by patch ---------------------------------------------------------------------

started=$SECONDS
stock_build lab
series=ours
series_stage "$stock"
top=$(git -C "$stage" rev-parse HEAD)
mapfile -t commits < <(git -C "$stage" rev-list --reverse stock..)
scratch_in "$WF_BUILD"
work=$scratch
unheeded=$work/unheeded
: >"$unheeded"

compiled=()
for c in w1 sparse clang arm64; do ! wants $c || compiled+=("$c"); done
if [ ${#compiled[@]} -gt 0 ]; then
	tree_plain
	check_tree "$tree" stock
	for c in "${compiled[@]}"; do check_compile "$c" stock; done
fi

wanted=()
for i in "${!names[@]}"; do
	name=${names[$i]} commit=${commits[$i]}
	[ -z "$patch" ] || [ "$patch" = "$name" ] || continue
	wanted+=("$name")
	! wants checkpatch || check_checkpatch "$name" "$commit"
	if wants build || wants boot; then
		tree_built
		check_tree "$tree" "$commit"
		if check_build "$name" "$commit" && wants boot; then
			scratch=$work
			check_boot "$name"
		fi
	fi
	if wants kdoc; then
		git -C "$stage" checkout -q -f "$commit"
		check_kdoc "$name" "$commit"
	fi
	if [ ${#compiled[@]} -gt 0 ]; then
		tree_plain
		check_tree "$tree" "$commit"
		for c in "${compiled[@]}"; do check_compile "$c" "$name"; done
	fi
done

table
[ ! -s "$unheeded" ] || {
	echo
	echo "What checkpatch says wrongly, and why:"
	awk 'NR % 2 { s = $0; next } { print "  " s "\n  " $0 }' "$unheeded"
}
say "Took $(since $started)"
[ $bad = 0 ] || die "$bad checks found something"
echo "The series is fit to be sent."
