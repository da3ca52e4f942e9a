# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf shell: boot our kernel into a shell on this terminal.

usage() {
	cat <<-'END'
	Usage: ./wf shell [--stock] [--debug] [--accel tcg|icount|kvm] [--cpus N] [--memory MiB]

	Boots our kernel (or stock) into busybox' shell on this terminal, with folio-measure
	and the test programs in /wf. Leave with exit, Ctrl-D, or Ctrl-A X.
	END
}

accel=auto cpus=2 vm_memory=${WF_VM_MEMORY:-2048} which=ours config=lab
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--stock) which=stock ;;
	--debug) config=debug ;;
	--accel) value "$@" && accel=$REPLY && shift ;;
	--cpus) value "$@" && cpus=$REPLY && shift ;;
	--memory) value "$@" && vm_memory=$REPLY && shift ;;
	*) bad_use "no such option: $1" ;;
	esac
	shift
done
[[ $cpus =~ ^[1-9][0-9]*$ ]] || bad_use "--cpus: \"$cpus\" is no number"
[[ $vm_memory =~ ^[1-9][0-9]*$ ]] || bad_use "--memory: \"$vm_memory\" is no number of MiB"

[ -t 0 ] || bad_use "standard input is no terminal; programs are run without one by ./wf test"

. "$WF_TOP/lab/needs.sh"
. "$WF_TOP/lab/fetch.sh"
. "$WF_TOP/lab/patches.sh"
. "$WF_TOP/lab/build.sh"
. "$WF_TOP/lab/boot.sh"
. "$WF_TOP/lab/programs.sh"

accel_resolve test
[ "$accel" != icount ] || cpus=1
needs_install
series=ours
if [ $which = stock ]; then
	stock_build $config
elif [ $config = debug ]; then
	series_build debug debug
else
	series_build ours lab
fi
scratch_in "$WF_BUILD"
program_measure "$scratch"
program_tests "$stock"
mapfile -t programs < <(make -s -C "$WF_TOP/tests" list)
echo : >"$scratch/job"
initramfs "$scratch/cpio" "$scratch/job" "$scratch/folio-measure" "${programs[@]/#/$WF_BUILD/tests/}"
qemu_args "$accel" "$cpus" "$vm_memory"
say "Booting $(short "$kernel")"
"${qemu[@]}" -serial mon:stdio -kernel "$kernel" -initrd "$scratch/cpio" \
	-append "$append wf.shell"
