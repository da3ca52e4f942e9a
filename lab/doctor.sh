# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf doctor: what the lab needs, whether it is there, and how to get it.

usage() {
	cat <<-'END'
	Usage: ./wf doctor

	Says for each thing the lab needs whether it is there and how to get it. Changes
	nothing. Exit status 1 if something is missing that the lab cannot get by itself.
	END
}
case ${1-} in
'') ;;
-h | --help) usage && exit 0 ;;
*) bad_use "no such option: $1" ;;
esac

. "$WF_TOP/lab/needs.sh"
. "$WF_TOP/lab/fetch.sh"

rc=0
there() { printf 'ok       %-18s %s\n' "$1" "$2"; }
lacks() { printf 'missing  %-18s %s\n' "$1" "$2"; }
bad() { lacks "$@" && rc=1; }

can_install=
if [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; then can_install=1; fi
while read -r need how what why; do
	if need_met "$how" "$what"; then
		there "$need" "$why"
	elif [ -n "$can_install" ]; then
		lacks "$need" "$why; the lab installs it, or: apt-get install $need"
	else
		bad "$need" "$why; as root: apt-get install $need"
	fi
done < <(needs_table)
# What one command needs is no reason to fail.
while read -r need how what why; do
	if need_met "$how" "$what"; then there "$need" "$why"; else lacks "$need" "$why; that command installs it"; fi
done < <(needs_extra)

if [ -n "${WF_LINUX-}" ]; then
	there "kernel source" "\$WF_LINUX: $WF_LINUX"
elif source_cached; then
	there "kernel source" "$source_version in $WF_CACHE"
elif [ -n "$(apt_mirror)" ]; then
	lacks "kernel source" "fetched when needed: $package $debian, through apt's mirror"
else
	lacks "kernel source" "apt names no Debian mirror; fetched from kernel.org, or set \$WF_LINUX"
fi
found=$(ls -d "$WF_CACHE"/stock-lab-*/.wf-complete 2>/dev/null | wc -l) || :
if [ "$found" != 0 ]; then
	there "stock kernel" "built, $found of them in $WF_CACHE"
else
	lacks "stock kernel" "built when needed, four to ten minutes on two cores"
fi
disk() {
	local d=$1 free

	while [ ! -d "$d" ]; do d=$(dirname "$d"); done
	free=$(df -Pm "$d" | awk 'END { print $4 }')
	if [ "$free" -ge "$2" ] && [ -w "$d" ]; then
		there "disk" "$free MiB free for $1"
	else
		bad "disk" "$2 MiB are wanted for $1, $free are free; \$WF_BUILD and \$XDG_CACHE_HOME move it"
	fi
}
disk "$WF_CACHE" 2000
disk "$WF_BUILD" 4000
free=$(awk '/MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
if [ "$free" -ge 4600 ]; then
	there "memory" "$free MiB available"
else
	lacks "memory" "two machines of 2048 MiB want 4600 MiB, $free are there; WF_VM_MEMORY and --memory make them smaller"
fi
if [ -r /dev/kvm ] && [ -w /dev/kvm ]; then
	there "/dev/kvm" "--accel kvm may be used"
else
	there "no /dev/kvm" "not needed; --accel kvm would want it"
fi
exit $rc
