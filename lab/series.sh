# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf series: the patches as a mail-ready series.

usage() {
	cat <<-'END'
	Usage: ./wf series [--out DIR] [--signoff] [--version N]

	Writes the patches of kernel/ as git format-patch does, with a cover letter, to DIR
	(build/series), and says what scripts/checkpatch.pl --strict thinks of them.

	  --signoff      add your Signed-off-by (of git config user.name and user.email)
	  --version N    mark it as version N
	END
}

out=$WF_BUILD/series more=()
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--out) value "$@" && out=$REPLY && shift ;;
	--signoff) more+=(--signoff) ;;
	--version) value "$@" && more+=("-v$REPLY") && shift ;;
	*) bad_use "no such option: $1" ;;
	esac
	shift
done

# What is there is replaced: only an earlier series may be.
[ ! -e "$out" ] || [ -d "$out" ] || die "$out is no directory"
[ ! -d "$out" ] || [ -z "$(find "$out" -mindepth 1 ! -name '*.patch' -print -quit)" ] ||
	die "$out holds more than patches, which --out would replace; please name an empty or a new directory"

. "$WF_TOP/lab/needs.sh"
. "$WF_TOP/lab/fetch.sh"
. "$WF_TOP/lab/patches.sh"
. "$WF_TOP/lab/gittree.sh"
. "$WF_TOP/lab/checkpatch.sh"

needs_install git xz-utils perl python3-ply python3-git
gittree=$WF_BUILD/tree
source_find
gittree_make
[ -n "$(git -C "$gittree" rev-list stock..)" ] || die "kernel/series names no patch"

# Written beside and put in place when complete.
mkdir -p "$(dirname "$out")"
scratch_in "$(dirname "$out")"
wf_git -C "$gittree" format-patch -q --cover-letter --subject-prefix=PATCH "${more[@]}" -o "$scratch" stock ||
	die "git cannot export the series"

# The cover letter: kernel/cover holds its subject and, after a blank line, its text.
cover=$(ls "$scratch"/*0000-cover-letter.patch)
if [ -f "$WF_TOP/kernel/cover" ]; then
	awk -v text="$WF_TOP/kernel/cover" '
		/\*\*\* SUBJECT HERE \*\*\*/ { getline s <text; sub(/\*\*\* SUBJECT HERE \*\*\*/, s); print; getline s <text; next }
		/\*\*\* BLURB HERE \*\*\*/ { while ((getline s <text) > 0) print s; next }
		{ print }' "$cover" >"$cover.tmp"
	mv "$cover.tmp" "$cover"
fi
rm -rf "$out"
chmod 755 "$scratch"
mv "$scratch" "$out"

rc=0
log=$WF_LOG/checkpatch.log
for p in "$out"/*.patch; do
	case $p in *0000-cover-letter.patch) continue ;; esac
	if checkpatch "$gittree" "$log" "$(realpath "$p")"; then
		printf '%s: clean\n' "$(short "$p")"
	else
		printf '%s: %d remarks of checkpatch\n' "$(short "$p")" "$(wc -l <"$log")"
		sed 's/^/  /' "$log"
		rc=1
	fi
done
say "The series is in $(short "$out"); git send-email takes it"
exit $rc
