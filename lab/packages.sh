# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Real programs out of Debian's packages, with the libraries they load. Nothing is
# installed: apt works out what a package needs, and what the programs load is kept.

# One suite for everyone, whatever the machine runs: the one the kernel's source is for.
programs_suite=trixie

# programs_fetch NAME FILE… -- PACKAGE…: FILEs (paths in the packages; "PATH=NAME" renames)
# and all libraries they load, once per suite into the cache. $programs is the directory,
# with bin/, lib/ and versions.
programs_fetch() {
	local name=$1 files=() f mirror keys log=$WF_LOG/programs.log lock

	shift
	while [ "$1" != -- ]; do files+=("$1") && shift; done
	shift
	programs=$WF_CACHE/programs-$programs_suite-$name
	[ "$(cat "$programs/.wf-complete" 2>/dev/null)" != "${files[*]} -- $*" ] || return 0
	mkdir -p "$WF_CACHE" 2>/dev/null || die "cannot write to $WF_CACHE"
	exec {lock}>"$WF_CACHE/programs.lock"
	flock "$lock"
	command -v apt-get >/dev/null && mirror=$(apt_mirror) && [ -n "$mirror" ] ||
		die "no programs: this machine's apt names no Debian mirror to fetch $* from"
	keys=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -f "$keys" ] || keys=/etc/apt/trusted.gpg
	scratch_in "$WF_CACHE"
	mkdir -p "$scratch"/{lists/partial,cache/archives/partial,tree/usr,out/bin,out/lib}
	echo "deb [signed-by=$keys] $mirror $programs_suite main" >"$scratch/sources.list"
	: >"$scratch/status"
	step "Fetching the list of $programs_suite" "$log" : private_apt apt-get update ||
		die "no programs: no list of $programs_suite: $(why "$log") (log: $(short "$log"))"
	# As if nothing were installed: all that the programs need comes along.
	step "Fetching $* and what they need" "$log" fetched_so_far \
		private_apt apt-get -y -o Dir::State::status="$scratch/status" --no-install-recommends \
		--download-only install "$@" ||
		die "no programs: cannot fetch $*: $(why "$log") (log: $(short "$log"))"
	step "Unpacking them" "$log" : programs_unpack "$scratch" ||
		die "no programs: cannot unpack them: $(why "$log") (log: $(short "$log"))"
	programs_gather "$scratch/tree" "$scratch/out" "${files[@]}"
	for f; do
		printf '%s ' "$f"
		ls "$scratch/cache/archives" | sed -n "s/^${f}_\(.*\)_[a-z0-9]*\.deb$/\1/p" | sed 's/%3a/:/g'
	done >"$scratch/out/versions"
	echo "${files[*]} -- $*" >"$scratch/out/.wf-complete"
	rm -rf "$programs"
	mv "$scratch/out" "$programs" || die "cannot write to $WF_CACHE"
	rm -rf "$scratch"
	exec {lock}>&-
}

# Programs and libraries of the fetched packages into $1/tree.
programs_unpack() {
	local deb

	ln -s usr/lib "$1/tree/lib"
	for deb in "$1"/cache/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -C "$1/tree" --no-same-owner --wildcards \
			--transform 's,^\./lib\([0-9]*/\),./usr/lib\1,' --transform 's,^\./s\?bin/,./usr/bin/,' -xf - \
			'*/bin/*' '*/sbin/*' '*.so' '*.so.*' 2>/dev/null || [ $? = 2 ] || return 1
		rm -f "$deb.done"
	done
}

# programs_gather TREE OUT FILE…: copy the FILEs, and what they load, out of TREE.
programs_gather() {
	local tree=$1 out=$2 f lib loader

	shift 2
	loader=$(find "$tree" -name 'ld-linux-x86-64.so.2' | head -n 1)
	[ -x "$loader" ] || die "no programs: no dynamic loader in libc6"
	for f; do
		cp -L "$tree/${f%=*}" "$out/$([[ $f = */lib/* ]] && echo lib || echo bin)/$(basename "${f#*=}")" ||
			die "no programs: no ${f%=*} in the packages"
		"$loader" --library-path "$tree/usr/lib/x86_64-linux-gnu" --list "$tree/${f%=*}" >"$out/list" ||
			die "no programs: ${f%=*} lacks a library: $(cat "$out/list")"
		while read -r lib; do
			cp -L "$lib" "$out/lib/"
		done < <(sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' "$out/list")
	done
	rm "$out/list"
	cp -L "$loader" "$out/lib/"
}

# The lines for gen_init_cpio by which the programs are in /wf, their libraries and the
# loader where they are looked for.
programs_cpio() {
	local f lib=/usr/lib/x86_64-linux-gnu

	printf 'dir %s 755 0 0\n' /lib64 /usr /usr/lib $lib
	printf 'slink /lib64/ld-linux-x86-64.so.2 %s/ld-linux-x86-64.so.2 777 0 0\n' $lib
	for f in "$programs"/bin/* "$programs"/lib/*; do
		case $f in
		*/\*) ;;
		*/lib/*) printf 'file %s/%s %s 755 0 0\n' $lib "${f##*/}" "$f" ;;
		*) printf 'file /wf/%s %s 755 0 0\n' "${f##*/}" "$f" ;;
		esac
	done
}
