# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf clean: remove what was built.

usage() {
	cat <<-'END'
	Usage: ./wf clean [--cache]

	Removes what was built here (build/ or $WF_BUILD), the kernel git tree of `wf tree`
	with it; with --cache the fetched sources and the finished stock builds too.
	END
}
what=("$WF_BUILD")
case ${1-} in
'') ;;
--cache) what+=("$WF_CACHE") ;;
-h | --help) usage && exit 0 ;;
*) bad_use "no such option: $1" ;;
esac

# Only what this lab made is removed, whatever $WF_BUILD names.
[ ! -d "$WF_BUILD" ] || [ -d "$WF_LOG" ] || [ -z "$(ls -A "$WF_BUILD")" ] ||
	die "$(short "$WF_BUILD") does not look like a build of this lab"
for d in "${what[@]}"; do
	[ -d "$d" ] || continue
	step "Removing $(short "$d")" /dev/null : rm -rf "$d" || die "cannot remove $d"
	say "Removed $(short "$d")"
done
