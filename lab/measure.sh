# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf measure: folio-measure on the kernel that is running now.

usage() {
	cat <<-'END'
	Usage: ./wf measure [folio-measure's options] [EXPERIMENT…]

	Builds folio-measure and runs it on the kernel that is running now. What the kernel or
	the permissions do not allow is skipped with the reason; every setting is put back. As
	root it sees most. The options are those of folio-measure:

	END
}

. "$WF_TOP/lab/needs.sh"
. "$WF_TOP/lab/programs.sh"

needs_install gcc libc6-dev make libjansson-dev
case " $* " in *" --help "* | *" -h "*) usage ;; esac
program_make measure measure
rc=0
"$WF_BUILD/measure/folio-measure" "$@" || rc=$?
exit $rc
