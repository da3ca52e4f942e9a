# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# What the lab needs from the machine: one line each, what provides it, what for.

# Debian package, how to see that it is there, what for.
needs_table() {
	cat <<-'END'
	gcc              cmd gcc                    compiles the kernel and the programs
	libc6-dev        hdr stdio.h                links the programs
	make             cmd make                   builds
	git              cmd git                    applies the patches
	flex             cmd flex                   builds the kernel
	bison            cmd bison                  builds the kernel
	bc               cmd bc                     builds the kernel
	perl             cmd perl                   checkpatch.pl
	xz-utils         cmd xz                     unpacks the kernel
	libelf-dev       hdr gelf.h                 builds the kernel (objtool)
	libjansson-dev   hdr jansson.h              reads and writes the results
	qemu-system-x86  cmd qemu-system-x86_64     boots the kernels
	busybox-static   static busybox             user space of the booted kernels
	END
}

# What only some commands need, and name: needs_install PACKAGE…
needs_extra() {
	cat <<-'END'
	libcap-dev             hdr sys/capability.h           test: the kernel's own selftests
	libnuma-dev            hdr numa.h                     test: the kernel's own selftests
	liburing-dev           hdr liburing.h                 test: the kernel's own selftests
	clang-19               cmd clang-19                   check: a second compiler
	llvm-19                cmd llvm-ar-19                 check: its tools
	lld-19                 cmd ld.lld-19                  check: its linker
	sparse                 cmd sparse                     check: the types of pointers and locks
	gcc-aarch64-linux-gnu  cmd aarch64-linux-gnu-gcc      check: compiles for arm64
	python3                cmd python3                    check: kernel-doc
	python3-ply            file /usr/lib/python3/dist-packages/ply/lex.py  series: checkpatch.pl looks at licences
	python3-git            file /usr/lib/python3/dist-packages/git/__init__.py  series: the same
	gnuplot-nox            cmd gnuplot                    compare --html: the plots
	debhelper              cmd dh                         deb: builds the packages
	rsync                  cmd rsync                      deb: gathers the headers
	cpio                   cmd cpio                       deb: gathers the headers
	kmod                   cmd depmod                     deb: lists the modules
	libssl-dev             hdr openssl/ssl.h              deb: signs the modules
	libdw-dev              hdr elfutils/libdw.h           deb: versions of symbols
	dpkg-dev               cmd dpkg-buildpackage          deb: builds the packages
	mmdebstrap             cmd mmdebstrap                 deb --try: Debian for the disk
	e2fsprogs              cmd mke2fs                     deb --try: its file system
	fdisk                  cmd sfdisk                     deb --try: its partition
	grub-common            cmd grub-mkimage               deb --try: its boot loader
	grub-pc-bin            file /usr/lib/grub/i386-pc/boot.img  deb --try: its boot loader
	END
}

need_met() {
	case $1 in
	cmd) command -v "$2" >/dev/null ;;
	hdr) echo "#include <$2>" | gcc -E - >/dev/null 2>&1 ;;
	static) busybox_static >/dev/null ;;
	file) [ -e "$2" ] ;;
	esac
}

# The path of a statically linked busybox.
busybox_static() {
	local b

	for b in "$(command -v busybox || :)" /bin/busybox /usr/bin/busybox /bin/busybox-static; do
		[ -x "$b" ] || continue
		# A static program asks for no interpreter.
		if ! LC_ALL=C readelf -lW "$b" 2>/dev/null | grep -q INTERP; then
			printf '%s\n' "$b"
			return 0
		fi
	done
	return 1
}

# Packages that are missing, of needs_table or of those that are named.
needs_missing() {
	local package how what why

	while read -r package how what why; do
		[ $# = 0 ] || [[ " $* " = *" $package "* ]] || continue
		need_met "$how" "$what" || printf '%s ' "$package"
	done < <(needs_table && { [ $# = 0 ] || needs_extra; })
}

# Say what is missing (of needs_table, or of what is named) and install it, or give up.
needs_install() {
	local missing as=()

	missing=$(needs_missing "$@")
	[ -n "$missing" ] || return 0
	say "Missing packages: $missing"
	command -v apt-get >/dev/null || die "no apt here; install what these Debian packages hold: $missing"
	if [ "$(id -u)" != 0 ]; then
		sudo -n true 2>/dev/null || die "not root; please run: apt-get install $missing"
		as=(sudo -n)
	fi
	# shellcheck disable=SC2086 # a list of words
	as+=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
	step "Installing them through apt" "$WF_LOG/apt.log" : \
		"${as[@]}" install --no-install-recommends $missing || {
		step "Updating apt's lists" "$WF_LOG/apt.log" : "${as[@]}" update &&
			step "Installing them through apt" "$WF_LOG/apt.log" : \
				"${as[@]}" install --no-install-recommends $missing ||
			die "apt cannot install them: $(why "$WF_LOG/apt.log") (log: $(short "$WF_LOG/apt.log"))"
	}
	missing=$(needs_missing "$@")
	[ -z "$missing" ] || die "installed, yet not found: $missing"
}
