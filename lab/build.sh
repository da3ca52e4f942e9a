# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Kernels: stock once per source, config and compiler, in the cache; others from a copy
# of its objects, so that only what a series changes is compiled.

# A .config of someone else's is not meant.
unset KCONFIG_CONFIG

# The same kernel whoever builds it, and whenever.
kernel_make() {
	local tree=$1

	shift
	env -u MAKEFLAGS -u MAKELEVEL KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 1970' KBUILD_BUILD_USER=wholefolio \
		KBUILD_BUILD_HOST=lab KBUILD_BUILD_VERSION=1 LC_ALL=C \
		make -C "$tree" -j"$(nproc)" "$@"
}

# Fragments of the configuration $1: "lab", or what is on top of it.
config_fragments() {
	local f

	for f in lab $(case $1 in debug) echo selftest debug ;; lab) ;; *) echo "$1" ;; esac); do
		printf '%s\n' "$WF_TOP/kernel/config/$f"
	done
}

config_merge() {
	local tree=$1 f

	shift
	for f in "$@"; do [ -f "$f" ] || die "no such configuration: $(short "$f")"; done
	(cd "$tree" && scripts/kconfig/merge_config.sh -m "${KCONFIG_CONFIG:-.config}" "$@") && kernel_make "$tree" olddefconfig
}

config_start() {
	kernel_make "$1" tinyconfig && config_merge "$@"
}

# "n of m  " from a build's log; m is what the last such build took.
built_so_far() {
	local n

	n=$(grep -c '^  [A-Z]' "$1") || :
	[ "$n" -le "$build_steps" ] || build_steps=$n
	printf '%d of about %d  ' "$n" "$build_steps"
}

# Build the tree $1, called $2; $3 remembers the number of steps, $4 is a first guess.
kernel_build() {
	local log=$WF_LOG/build-${2//[^a-z0-9-]/-}.log start=$SECONDS

	build_steps=$(cat "$3" 2>/dev/null) || build_steps=$4
	step "Building the $2 kernel" "$log" built_so_far kernel_make "$1" bzImage || {
		grep -aE -m8 'error:|Error [0-9]|No space left|undefined reference' "$log" | sed 's/^/  /' >&2 || tail -n 5 "$log" >&2
		die "the $2 kernel does not build (log: $(short "$log"))"
	}
	build_steps=$(grep -c '^  [A-Z]' "$log") || :
	[ "$build_steps" -lt 20 ] || echo "$build_steps" >"$3"
	[ $((SECONDS - start)) -lt 5 ] || say "Built the $2 kernel: $build_steps steps, $(since $start)"
}

# The stock kernel of configuration $1: $stock is its tree, built and complete.
stock_build() {
	local fragments tools key lock partial guess=1150

	source_find
	mapfile -t fragments < <(config_fragments "$1")
	tools="$source_id ${source_unbuilt[*]} $(gcc --version | head -n1) $(ld --version | head -n1)"
	key=$(cat - "${fragments[@]}" <<<"$tools" | sha256sum | cut -c1-12)
	stock=$WF_CACHE/stock-$1-$key
	[ -e "$stock/.wf-complete" ] || stock_alike "$1" "${fragments[@]}"
	[ -e "$stock/.wf-complete" ] || {
		exec {lock}>"$WF_CACHE/build.lock"
		flock -n "$lock" || {
			say "Another build of the stock kernel is at work; waiting for it"
			flock "$lock"
		}
	}
	if [ ! -e "$stock/.wf-complete" ]; then
		[ "$1" = lab ] || guess=1500
		rm -rf "$stock" "$WF_CACHE"/partial.*
		stock_forget "$1"
		partial=$WF_CACHE/partial.$$
		scratches+=("$partial")
		source_unpack "$partial"
		step "Configuring the stock kernel" "$WF_LOG/config-stock.log" : config_start "$partial" "${fragments[@]}" ||
			die "the stock kernel cannot be configured: $(why "$WF_LOG/config-stock.log") (log: $(short "$WF_LOG/config-stock.log"))"
		kernel_build "$partial" stock "$WF_CACHE/steps-$1" $guess
		echo "$tools" >"$partial/.wf-tools"
		touch "$partial/.wf-complete"
		mv "$partial" "$stock"
	fi
	[ -z "${lock-}" ] || exec {lock}>&-
	stock=$(realpath "$stock")
	touch "$stock"
	kernel=$stock/arch/x86/boot/bzImage
}

# Options that stock does not know leave its kernel as it was: where a finished build of
# the same source and tools comes out with the same .config, $stock becomes a link to it.
stock_alike() {
	local have config name=$1

	shift
	for have in "$WF_CACHE/stock-$name"-*/; do
		have=${have%/}
		[ -e "$have/.wf-complete" ] && [ ! -L "$have" ] && [ "$(cat "$have/.wf-tools")" = "$tools" ] || continue
		scratch_in "$WF_BUILD"
		config=$scratch/config
		KCONFIG_CONFIG=$config step "Looking for a stock build of the same configuration" \
			"$WF_LOG/config-stock.log" : config_start "$have" "$@" || return 0
		if cmp -s "$config" "$have/.config"; then
			ln -sfn "${have##*/}" "$stock"
			return 0
		fi
	done
}

# Of each configuration the last three stock builds are kept.
stock_forget() {
	find "$WF_CACHE" -maxdepth 1 -name "stock-$1-*" -xtype l -delete
	find "$WF_CACHE" -maxdepth 1 -name "stock-$1-*" -type d -printf '%T@ %p\n' | sort -rn |
		tail -n +3 | cut -d' ' -f2- | xargs -r -d '\n' rm -rf
}

# Make $tree a copy of the stock objects, unless it is one of them already.
stock_copy() {
	[ "$(cat "$tree/.wf-stock" 2>/dev/null)" != "${stock##*/}" ] || return 0
	rm -rf "$tree"
	scratch_in "$WF_BUILD"
	step "Copying the stock objects" "$WF_LOG/copy.log" : cp -a --reflink=auto "$stock/." "$scratch" ||
		die "cannot copy the stock build: $(why "$WF_LOG/copy.log")"
	rm -f "$scratch/.wf-complete"
	echo "${stock##*/}" >"$scratch/.wf-stock"
	mv "$scratch" "$tree"
}

# Build $series as kernel $1, configuration $2, from a copy of the stock objects.
# $tree is its tree, $kernel its image.
series_build() {
	local name=$1 lock

	stock_build "$2"
	series_stage "$stock"
	tree=$WF_BUILD/linux-$name
	exec {lock}>"$WF_BUILD/$name.lock"
	flock -n "$lock" || {
		say "Another build of $name is at work; waiting for it"
		flock "$lock"
	}
	stock_copy
	tree_update
	tree_configure "$2"
	kernel_build "$tree" "$name" "$tree/.wf-steps" 100
	exec {lock}>&-
	kernel=$tree/arch/x86/boot/bzImage
}

# Make $tree the stock tree plus $stage, writing only files whose content differs, so
# that make sees just what changed.
tree_update() {
	local f touched=$tree/.wf-touched

	git -C "$stage" diff --name-only --no-renames stock HEAD >"$stage/.wf-touched"
	# What an interrupted run may have changed stays on the list until it is done.
	touch "$touched"
	sort -u "$stage/.wf-touched" "$touched" >"$touched.new"
	mv "$touched.new" "$touched"
	while read -r f; do
		if [ -f "$stage/$f" ]; then
			file_update "$stage/$f" "$tree/$f"
		elif [ -f "$stock/$f" ] && ! grep -qxF "$f" "$stage/.wf-touched"; then
			file_update "$stock/$f" "$tree/$f"
		else
			rm -f "$tree/$f"
		fi
	done <"$touched"
	cp "$stage/.wf-touched" "$touched"
}

file_update() {
	! cmp -s "$1" "$2" || return 0
	mkdir -p "${2%/*}"
	cp "$1" "$2.wf-new" && chmod --reference="$1" "$2.wf-new" && mv "$2.wf-new" "$2" || die "cannot write $(short "$2")"
}

# Configure $tree again when the fragments or a Kconfig file of the series changed.
tree_configure() {
	local fragments inputs

	mapfile -t fragments < <(config_fragments "$1")
	inputs=$({
		cat "${fragments[@]}"
		{ grep Kconfig "$tree/.wf-touched" || :; } | sed "s,^,$tree/," | xargs -r -d '\n' cat
	} | sha256sum)
	[ "$inputs" != "$(cat "$tree/.wf-config" 2>/dev/null)" ] || return 0
	step "Configuring the kernel" "$WF_LOG/config.log" : config_merge "$tree" "${fragments[@]}" ||
		die "the kernel cannot be configured: $(why "$WF_LOG/config.log") (log: $(short "$WF_LOG/config.log"))"
	echo "$inputs" >"$tree/.wf-config"
}
