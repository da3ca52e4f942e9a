# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The kernel's source: found, verified, unpacked.
#
# source_find sets
#   source_tar      a verified tarball, or empty
#   source_tree     a tree of the user's, or empty
#   source_id       what a build's key is made of
#   source_version  what every figure names

source_find() {
	source_tar= source_tree=
	if [ -n "${WF_LINUX-}" ]; then
		source_of_user
	elif ! source_cached; then
		mkdir -p "$WF_CACHE" 2>/dev/null || die "cannot write to $WF_CACHE"
		exec {fetch_lock}>"$WF_CACHE/fetch.lock"
		flock "$fetch_lock"
		source_cached || source_package || source_kernel_org ||
			die "no source: neither $package (log: $(short "$WF_LOG/fetch.log")) nor kernel.org can be had; \$WF_LINUX may name a tarball or a tree"
		exec {fetch_lock}>&-
	fi
	[ "$source_version" = "$debian" ] || [ "$source_version" = "$version" ] ||
		say "NOTICE: not the pinned source ($debian) but $source_version; every figure is of that one"
}

sha256() {
	sha256sum <"$1" | cut -d' ' -f1
}

source_of_user() {
	local l

	l=$(realpath "$WF_LINUX" 2>/dev/null) && [ -e "$l" ] || die "WF_LINUX: no such file: $WF_LINUX"
	if [ -d "$l" ]; then
		[ -f "$l/mm/memory.c" ] || die "WF_LINUX: not a kernel tree: $WF_LINUX"
		source_tree=$l
		source_version=$(tree_version "$l")+own-tree
		source_id=$(cd "$l" && find . -name .git -prune -o -type f -printf '%P %s %T@\n' |
			sort | sha256sum | cut -c1-16)
	else
		source_id=$(sha256 "$l")
		[ "$source_id" = "$tar_sha256" ] ||
			die "WF_LINUX: wrong checksum: $WF_LINUX is not the source of $debian that kernel/BASE pins (a tree would be taken as it is)"
		source_tar=$l
		source_version=$debian
	fi
}

tree_version() {
	awk -F' *= *' '$1 == "VERSION" { v = $2 } $1 == "PATCHLEVEL" { p = $2 }
		$1 == "SUBLEVEL" { s = $2 } $1 == "EXTRAVERSION" { print v "." p "." s $2; exit }' "$1/Makefile"
}

# The cache holds linux-<version>.tar.xz with its checksum beside it in .sha256.
source_cached() {
	local tar sum

	# The pinned one, or the newest of what was taken in its place.
	for tar in "$WF_CACHE/linux-$debian.tar.xz" $(ls -t "$WF_CACHE"/linux-*.tar.xz 2>/dev/null || :); do
		[ -f "$tar" ] && [ -f "$tar.sha256" ] || continue
		source_version=${tar##*/linux-} source_version=${source_version%.tar.xz}
		sum=$(cat "$tar.sha256")
		[ "$source_version" != "$debian" ] || sum=$tar_sha256
		if [ "$(sha256 "$tar")" = "$sum" ]; then
			source_tar=$tar source_id=$sum
			return 0
		fi
		say "NOTICE: wrong checksum: $tar is damaged; it is fetched again"
		rm -f "$tar" "$tar.sha256"
	done
	return 1
}

# Put the tarball $1 into the cache as version $2.
source_keep() {
	source_version=$2
	source_id=$(sha256 "$1")
	source_tar=$WF_CACHE/linux-$2.tar.xz
	echo "$source_id" >"$source_tar.sha256" && mv "$1" "$source_tar" ||
		die "cannot write to $WF_CACHE"
}

# Debian's mirror and key as this machine's own apt knows them, whatever the format of
# its source lists: the archive that brings bookworm or trixie itself.
apt_mirror() {
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
		awk '$3 == "main" && $2 ~ /^(bookworm|trixie|forky|sid|testing|(old)*stable)$/ { print $1; exit }'
}

# apt with directories of its own in $scratch: the machine's package lists stay as they are.
private_apt() {
	local tool=$1 as=()

	shift
	[ "$(id -u)" != 0 ] || as=(-o APT::Sandbox::User=root)
	"$tool" -q "${as[@]}" -o Dir::Etc::sourcelist="$scratch/sources.list" \
		-o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$scratch/lists" \
		-o Dir::Cache="$scratch/cache" -o Acquire::Retries=2 \
		-o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 "$@"
}

in_dir() {
	cd "$1" || return
	shift
	"$@"
}

fetched_so_far() {
	du -sm "$scratch" 2>/dev/null | awk '{ printf "%d MiB  ", $1 }'
}

# Take the source package from trixie-backports. The pinned version, or if it is gone
# from the mirror, the newest 7.3.y, for which apt's signatures vouch.
source_package() {
	local mirror keys=/usr/share/keyrings/debian-archive-keyring.gpg log=$WF_LOG/fetch.log have deb sum

	command -v apt-get >/dev/null && mirror=$(apt_mirror) && [ -n "$mirror" ] || {
		say "NOTICE: this machine's apt names no Debian mirror"
		return 1
	}
	[ -f "$keys" ] || keys=/etc/apt/trusted.gpg
	scratch_in "$WF_CACHE"
	mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial"
	echo "deb [signed-by=$keys] $mirror trixie-backports main" >"$scratch/sources.list"
	step "Fetching the list of trixie-backports" "$log" : private_apt apt-get update || {
		say "NOTICE: no list of trixie-backports: $(why "$log")"
		return 1
	}
	if grep -q NO_PUBKEY "$log"; then
		die "debian-archive-keyring lacks the key of trixie; please update that package"
	fi
	have=$(private_apt apt-cache madison "$package" 2>/dev/null | awk '{ print $3 }')
	if ! grep -qxF "$debian" <<<"$have"; then
		have=$(sort -rV <<<"$have" | grep -m1 "^${version%.*}\.") || {
			say "NOTICE: the mirror has no $package any more"
			return 1
		}
		say "NOTICE: $package $debian is gone from the mirror; taking $have"
	else
		have=$debian
	fi
	step "Fetching $package $have" "$log" fetched_so_far \
		in_dir "$scratch" private_apt apt-get download "$package=$have" || {
		say "NOTICE: cannot fetch $package: $(why "$log")"
		return 1
	}
	deb=$(ls "$scratch"/*.deb)
	sum=$(sha256 "$deb")
	[ "$have" != "$debian" ] || [ "$sum" = "$deb_sha256" ] ||
		die "wrong checksum: $package $debian has $sum, kernel/BASE says $deb_sha256"
	dpkg-deb --fsys-tarfile "$deb" |
		tar -xOf - "./usr/src/$package.tar.xz" >"$scratch/linux.tar.xz" ||
		die "cannot unpack $package: is the disk full?"
	[ "$have" != "$debian" ] || [ "$(sha256 "$scratch/linux.tar.xz")" = "$tar_sha256" ] ||
		die "wrong checksum: the tarball in $package is not the one kernel/BASE says"
	source_keep "$scratch/linux.tar.xz" "$have"
	rm -rf "$scratch"
}

# For people elsewhere: the same version from kernel.org, with kernel.org's own checksum.
source_kernel_org() {
	local url=https://cdn.kernel.org/pub/linux/kernel/v${version%%.*}.x log=$WF_LOG/fetch.log get

	if command -v curl >/dev/null; then
		get=(curl -fsSL --connect-timeout 20 -o)
	elif command -v wget >/dev/null; then
		get=(wget -q -T 20 -t 2 -O)
	else
		return 1
	fi
	scratch_in "$WF_CACHE"
	step "Fetching linux-$version from kernel.org" "$log" fetched_so_far \
		"${get[@]}" "$scratch/linux.tar.xz" "$url/linux-$version.tar.xz" &&
		"${get[@]}" "$scratch/sums" "$url/sha256sums.asc" 2>>"$log" || return 1
	grep -q "^$(sha256 "$scratch/linux.tar.xz")  linux-$version.tar.xz\$" "$scratch/sums" ||
		die "wrong checksum: linux-$version.tar.xz is not what kernel.org's sha256sums.asc says"
	source_keep "$scratch/linux.tar.xz" "$version+kernel.org"
	rm -rf "$scratch"
}

# What no configuration of ours compiles, more than half of the source. It stays out of
# the trees that are built and copied; `wf tree` and patches that touch it get it.
source_unbuilt=(
	drivers/{accel,clk,gpu,hid,hwmon,iio,infiniband,media,mfd,mtd}'/*.[ch]'
	drivers/{phy,pinctrl,platform,scsi,soc,staging,usb}'/*.[ch]' 'drivers/net/*/*.[ch]'
	arch/{alpha,arc,arm,csky,hexagon,loongarch,m68k,microblaze,mips,nios2}'/*.[chS]'
	arch/{openrisc,parisc,powerpc,riscv,s390,sh,sparc,xtensa}'/*.[chS]' 'boot/dts/*'
	'sound/soc/*.[ch]' 'sound/pci/*.[ch]' 'Documentation/devicetree/*' 'tools/perf/*.[chS]'
	'tools/perf/pmu-events/arch/*'
)

# Unpack the source into the new directory $1; "whole" as $2 leaves nothing out.
source_unpack() {
	local not=()

	mkdir -p "$1"
	if [ -n "$source_tree" ]; then
		step "Copying the kernel tree" "$WF_LOG/unpack.log" : source_copy "$1"
	else
		[ "${2-}" = whole ] || not=("${source_unbuilt[@]/#/--exclude=}")
		step "Unpacking Linux $source_version" "$WF_LOG/unpack.log" : \
			tar -C "$1" --strip-components=1 "${not[@]}" -xf "$source_tar"
	fi || die "cannot unpack the source: $(why "$WF_LOG/unpack.log")"
}

source_copy() {
	if [ -e "$source_tree/.git" ]; then
		git -C "$source_tree" ls-files -z | tar -C "$source_tree" --null -T - -cf - | tar -C "$1" -xf -
	else
		tar -C "$source_tree" -cf - . | tar -C "$1" -xf - && make -C "$1" mrproper
	fi
}

# Put files of the source (a list on standard input) into directory $2, from the tree $1
# or, where that leaves them out, from the source itself. Files that do not exist are none.
source_files() {
	local f missing=() from=$1 to=$2

	while read -r f; do
		mkdir -p "$to/$(dirname "$f")"
		if [ -f "$from/$f" ]; then
			cp "$from/$f" "$to/$f"
		elif [ -n "$source_tree" ] && [ -f "$source_tree/$f" ]; then
			cp "$source_tree/$f" "$to/$f"
		else
			missing+=("*/$f")
		fi
	done
	[ ${#missing[@]} = 0 ] || [ -z "$source_tar" ] ||
		tar -C "$to" --strip-components=1 --wildcards -xf "$source_tar" "${missing[@]}" 2>/dev/null || :
}
