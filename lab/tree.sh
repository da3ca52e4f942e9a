# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# wf tree: the kernel as a git tree, stock first, then one commit per patch; and back.

usage() {
	cat <<-'END'
	Usage: ./wf tree [--save | --force]

	Makes build/tree, a git tree of the kernel: the stock source as one commit (tag
	"stock"), then one commit per patch of kernel/series on branch "wholefolio". Edit
	there as one edits a kernel: commit, amend, rebase.

	  --save    write what was changed there back to kernel/: new files as they are, the
	            lines changed in existing files and the commit messages as hooks/, the
	            order as series. Edits not yet committed join the last commit that
	            touched their file.
	  --force   make it anew even if that loses what was not saved
	END
}

save= force=
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--save) save=1 ;;
	--force) force=1 ;;
	*) bad_use "no such option: $1" ;;
	esac
	shift
done

. "$WF_TOP/lab/needs.sh"
. "$WF_TOP/lab/fetch.sh"
. "$WF_TOP/lab/patches.sh"
. "$WF_TOP/lab/gittree.sh"

needs_install git xz-utils
gittree=$WF_BUILD/tree
if [ -n "$save" ]; then
	[ -d "$gittree/.git" ] || die "there is no $(short "$gittree") to save; ./wf tree makes it"
	gittree_save
else
	source_find
	gittree_make
	git -C "$gittree" log --reverse --format='  %h %s'
	say "The tree is $(short "$gittree"), branch wholefolio; ./wf tree --save brings edits back to kernel/"
fi
