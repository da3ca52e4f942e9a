# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf deb: Debian packages of the patched kernel, for a real machine.

usage() {
	cat <<-'END'
	Usage: ./wf deb [--config FILE | --try]

	Builds Debian packages of Linux with the series applied, by the kernel's own
	bindeb-pkg, into build/deb/. The configuration is that of the running kernel
	(/boot/config-* or /proc/config.gz), or FILE; new options get their defaults. A
	distribution's configuration takes an hour or more and some 20 GiB.

	  --config FILE   this configuration
	  --try           the lab's configuration with kernel/config/disk, some minutes: the
	                  package is installed with dpkg into a disk image with Debian on it,
	                  and QEMU boots from that disk. Needs root.
	END
}

config='' try=''
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--config) value "$@" && config=$REPLY && shift ;;
	--try) try=1 ;;
	*) bad_use "no such option: $1" ;;
	esac
	shift
done
[ -z "$config" ] || [ -z "$try" ] || bad_use "--try has a configuration of its own"
[ -z "$config" ] || [ -f "$config" ] || bad_use "--config: no such file: $config"
[ -z "$try" ] || [ "$(id -u)" = 0 ] || die "--try needs root, to install a package into a tree of its own"

. "$WF_TOP/lab/needs.sh"
. "$WF_TOP/lab/fetch.sh"
. "$WF_TOP/lab/patches.sh"
. "$WF_TOP/lab/build.sh"
. "$WF_TOP/lab/boot.sh"

PATH=$PATH:/usr/sbin:/sbin
needs_install
needs_install debhelper dpkg-dev rsync cpio kmod libssl-dev libdw-dev python3
[ -z "$try" ] || needs_install mmdebstrap e2fsprogs fdisk grub-pc-bin grub-common
out=$WF_BUILD/deb

# The configuration of the running kernel, as $1.
config_running() {
	local c=/boot/config-$(uname -r)

	if [ -r "$c" ]; then
		cp "$c" "$1"
	elif [ -r /proc/config.gz ]; then
		zcat /proc/config.gz >"$1"
	else
		die "the configuration of the running kernel is neither $c nor /proc/config.gz; --config names one"
	fi
}

# $tree, with the series applied; what was built in it before stays built.
deb_tree() {
	tree=$out/linux
	if [ -n "$try" ]; then
		tree=$out/linux-try
		stock_copy
	elif [ "$(cat "$tree/.wf-stock" 2>/dev/null)" != "$source_id" ]; then
		rm -rf "$tree"
		scratch_in "$out"
		source_unpack "$scratch" whole
		echo "$source_id" >"$scratch/.wf-stock"
		mv "$scratch" "$tree"
	fi
	# The stock form of all files that this series touches, or an earlier one did.
	series=ours
	scratch_in "$WF_BUILD"
	stock=$scratch
	{ series_touches && { cat "$tree/.wf-touched" 2>/dev/null || :; }; } | sort -u | source_files /nonexistent "$stock"
	series_stage "$stock"
	tree_update
}

deb_configure() {
	if [ -n "$try" ]; then
		config_merge "$tree" "$WF_TOP/kernel/config/lab" "$WF_TOP/kernel/config/disk"
	else
		# Keys and certificates that only its builder has are none of ours.
		"$tree/scripts/config" --file "$tree/.config" --set-str LOCALVERSION -wholefolio \
			--set-str SYSTEM_TRUSTED_KEYS '' --set-str SYSTEM_REVOCATION_KEYS '' \
			-d DEBUG_INFO_BTF -e DEBUG_INFO_NONE
		kernel_make "$tree" olddefconfig
	fi
}

deb_built() {
	printf '%d steps  ' "$(grep -c '^ *[A-Z][A-Z]* ' "$1")"
}

# Packages of earlier builds go only when the new ones are there.
deb_build() {
	local log=$WF_LOG/deb.log new

	rm -f "$out"/linux-upstream_*
	step "Building the packages" "$log" deb_built kernel_make "$tree" bindeb-pkg ||
		die "the packages do not build: $(why "$log") (log: $(short "$log"))"
	mapfile -t debs < <(find "$out" -maxdepth 1 -name '*.deb' -newer "$work/start" | sort)
	[ ${#debs[@]} -gt 0 ] || die "bindeb-pkg wrote no package (log: $(short "$log"))"
	find "$out" -maxdepth 1 -name '*.deb' ! -newer "$work/start" -delete
	release=$(cat "$tree/include/config/kernel.release")
	for new in "${debs[@]}"; do short "$new" && echo; done
}

# ---- --try: a disk with Debian and the package on it, booted -----------------------

# What is done first on that disk: says which kernel runs and what its switches say.
try_job() {
	cat <<-'END'
	echo "kernel $(uname -r)"
	mount | grep ' on / '
	cd /sys/kernel/mm/transparent_hugepage || exit 1
	for f in wp_reuse wp_copy wp_copy_max_kb wp_copy_dense_percent mincore_batch madv_free_batch; do
		echo "$f $(cat $f)" || exit 1
	done
	grep -H . hugepages-64kB/stats/wp_fault_* || exit 1
	dpkg -l 'linux-image-*-wholefolio*' | grep ^ii || exit 1
	END
}

# $1 becomes Debian with the package in it, installed by its own dpkg.
try_system() {
	local suite deb=

	suite=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
	for deb in "${debs[@]}"; do [[ ${deb##*/} != linux-image-* ]] || break; done
	mmdebstrap --variant=essential --include=mount --quiet --customize-hook="upload '$deb' /linux.deb" \
		--customize-hook="chroot \"\$1\" dpkg -i /linux.deb" \
		"$suite" "$1" "deb $(apt_mirror) $suite main" &&
		rm -f "$1/linux.deb" && ls "$1/boot/vmlinuz-$release" &&
		install -m 755 "$(busybox_static)" "$1/bin/busybox" &&
		install -m 755 "$WF_TOP/lab/init" "$1/wf-init" &&
		install -m 644 "$work/job" "$1/job" && mkdir -p "$1/boot/grub" &&
		# busybox' applets would replace Debian's programs
		sed -i '/--install/d; s,^export PATH=.*,export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp,' "$1/wf-init" &&
		sed -i 's,^\(ip link\|reboot\),busybox \1,; s,^hostname,busybox hostname,' "$1/wf-init" &&
		cat >"$1/boot/grub/grub.cfg" <<-END
		serial --unit=0
		terminal_output serial
		set timeout=0
		menuentry Wholefolio {
			linux /boot/vmlinuz-$release root=/dev/vda1 rw console=ttyS0 panic=-1 loglevel=5 reboot=t no_timer_check init=/wf-init
		}
		END
}

# The disk $2 with the file system $1: one partition, GRUB before it.
try_disk() {
	local grub=/usr/lib/grub/i386-pc

	truncate -s 1G "$2" && echo '2048,,L,*' | sfdisk -q "$2" &&
		mke2fs -q -t ext4 -d "$1" -E offset=$((2048 * 512)) "$2" $((1024 * 1024 - 2048)) &&
		printf 'root=(hd0,msdos1)\nprefix=(hd0,msdos1)/boot/grub\n' >"$work/early.cfg" &&
		grub-mkimage -O i386-pc -d $grub -p '(hd0,msdos1)/boot/grub' -c "$work/early.cfg" -o "$work/core.img" \
			biosdisk part_msdos ext2 linux normal configfile serial terminal &&
		dd if=$grub/boot.img of="$2" bs=440 count=1 conv=notrunc status=none &&
		dd if="$work/core.img" of="$2" seek=1 conv=notrunc status=none
}

try_boot() {
	local name=deb-try qemu append rc=0

	qemu_args tcg 2 1024
	mkdir -p "$WF_LOG"
	rm -f "$WF_LOG/$name".{console,result,qemu}
	spawn "$WF_LOG/$name.qemu" timeout --foreground -k 5 "$WF_TIMEOUT" "${qemu[@]}" \
		-drive "file=$work/disk,format=raw,if=virtio" \
		-serial "file:$WF_LOG/$name.console" -serial "file:$WF_LOG/$name.result"
	boot_pid[$name]=$child
	boot_from[$name]=$SECONDS
	boot_wait $name
	tr -d '\r' <"$WF_LOG/$name.console" | sed -n '/^wf: up/,$p' | sed '1d; /reboot:/d'
	rc=$(job_status $name)
	[ "$rc" = 0 ] || die "the installed kernel lacks something (log: $(short "$WF_LOG/$name.console"))"
	! kernel_reports $name || die "the installed kernel complains (log: $(short "$WF_LOG/$name.console"))"
}

mkdir -p "$out"
if [ -n "$try" ]; then stock_build lab; else source_find; fi
deb_tree
scratch_in "$WF_BUILD"
work=$scratch
touch "$work/start"
if [ -z "$try" ]; then
	if [ -n "$config" ]; then cp "$config" "$tree/.config"; else config_running "$tree/.config"; fi
fi
step "Configuring the kernel" "$WF_LOG/config.log" : deb_configure ||
	die "the kernel cannot be configured: $(why "$WF_LOG/config.log") (log: $(short "$WF_LOG/config.log"))"
deb_build
if [ -z "$try" ]; then
	say "To install: sudo apt install $(printf './%s ' "$(short "${debs[0]%/*}")/linux-image-$release"*)"
	exit 0
fi
try_job >"$work/job"
step "Installing the package into a disk image" "$WF_LOG/deb-try.log" : try_system "$work/system" ||
	die "the package cannot be installed: $(why "$WF_LOG/deb-try.log") (log: $(short "$WF_LOG/deb-try.log"))"
step "Writing the disk" "$WF_LOG/deb-disk.log" : try_disk "$work/system" "$work/disk" ||
	die "no disk: $(why "$WF_LOG/deb-disk.log") (log: $(short "$WF_LOG/deb-disk.log"))"
try_boot
say "The package installs, and its kernel boots from that disk"
