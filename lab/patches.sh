# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# A series of patches, ours or anyone's, becomes commits in a git tree.
#
# A series is named by a word: "ours" is kernel/series, a directory holds patches
# that `git am` takes, anything else is a range of commits in the git tree $series_tree.

# git with an identity where the person has none, and without their hooks and signing.
wf_git() {
	local as=()

	git config --global user.email >/dev/null 2>&1 || [ -n "${GIT_COMMITTER_EMAIL-}" ] ||
		as=(-c user.name=Wholefolio -c user.email=wholefolio@localhost)
	git "${as[@]}" -c commit.gpgSign=false -c core.hooksPath=/dev/null \
		-c core.autocrlf=false -c gc.auto=0 -c advice.detachedHead=false "$@"
}

# kernel/series without comments: a patch's name, then the new files it brings.
series_lines() {
	sed 's/#.*//; /^[[:space:]]*$/d' "$WF_TOP/kernel/series"
}

# Where the repository has the new file $1 of the series: kernel/ is laid out as the tree
# is, but the selftests are the programs of tests/.
series_file() {
	case $1 in
	tools/testing/selftests/mm/thp_batch/*.[ch]) printf '%s\n' "$WF_TOP/tests/${1##*/}" ;;
	*) printf '%s\n' "$WF_TOP/kernel/$1" ;;
	esac
}

# What patch $1 of ours changes in existing files, if anything.
hook_diff() {
	sed '1,/^---$/d' "$WF_TOP/kernel/hooks/$1.patch"
}

hook_message() {
	sed '/^---$/,$d' "$WF_TOP/kernel/hooks/$1.patch"
}

# Turn the series word $1 into $series: "ours" or a directory of patches.
series_find() {
	series=$1
	if [ "$1" = ours ]; then
		return
	elif [ -d "$1" ]; then
		series=$(realpath "$1")
		[ -n "$(series_files)" ] || die "no patches (*.patch, *.mbox, *.eml) in $1"
	else
		git -C "$series_tree" rev-list -n1 "$1" -- >/dev/null 2>&1 ||
			die "$1 is neither a directory of patches nor a range of commits in $(short "$series_tree")"
		scratch_in "$WF_BUILD"
		series=$scratch
		git -C "$series_tree" format-patch -q --no-signature -o "$series" "$1" ||
			die "git cannot export $1 from $(short "$series_tree")"
		[ -n "$(series_files)" ] || die "no commits in $1"
	fi
}

# The patch files of $series in order; cover letters hold no diff and are left out.
series_files() {
	local f

	for f in "$series"/*.patch "$series"/*.mbox "$series"/*.eml; do
		[ -f "$f" ] && grep -q '^--- ' "$f" && grep -q '^+++ ' "$f" && printf '%s\n' "$f"
	done
	return 0
}

# The existing files that $series changes, moves or deletes.
series_touches() {
	local name rest

	if [ "$series" = ours ]; then
		series_lines | while read -r name rest; do hook_diff "$name"; done
	else
		series_files | xargs -r -d '\n' cat
	fi | sed -n 's,^--- a/\([^[:space:]]*\).*,\1,p; s,^rename from ,,p; s,^copy from ,,p' | sort -u
}

# Commit $series, patch by patch, in the git tree $1, whose HEAD has the stock files.
series_apply() {
	local name files f

	if [ "$series" = ours ]; then
		while read -r name files; do
			[ -f "$WF_TOP/kernel/hooks/$name.patch" ] || die "kernel/series names $name, but there is no kernel/hooks/$name.patch"
			for f in $files; do
				mkdir -p "$1/$(dirname "$f")"
				cp "$(series_file "$f")" "$1/$f" || die "kernel/series: $name brings $f, which is not there"
			done
			hook_diff "$name" >"$1/.wf-diff"
			if [ -s "$1/.wf-diff" ]; then
				(cd "$1" && git apply --whitespace=nowarn .wf-diff) >"$1/.wf-log" 2>&1 ||
					series_reject "$1" "kernel/hooks/$name.patch"
			fi
			rm -f "$1/.wf-diff" "$1/.wf-log"
			wf_git -C "$1" add -A
			hook_message "$name" | wf_git -C "$1" commit -q --allow-empty -F - ||
				die "kernel/hooks/$name.patch: no commit message before its line \"---\""
		done < <(series_lines)
	else
		while read -r f; do
			wf_git -C "$1" am -q --whitespace=nowarn "$f" >"$1/.wf-log" 2>&1 || {
				cp "$f" "$1/.wf-diff"
				wf_git -C "$1" am --abort >/dev/null 2>&1 || :
				series_reject "$1" "$(short "$f")"
			}
			rm -f "$1/.wf-log"
		done < <(series_files)
	fi
}

# Say which patch does not apply and show the hunks that were rejected.
series_reject() {
	local rej

	(cd "$1" && git apply --reject --whitespace=nowarn .wf-diff) >/dev/null 2>"$1/.wf-log" || :
	say "wf: $2 does not apply to Linux $source_version:"
	grep -E '^error: ' "$1/.wf-log" | sed 's/^error: /  /' >&2 || :
	find "$1" -name '*.rej' | sort | while read -r rej; do
		sed 's/^/  | /' "$rej" | head -n 40 >&2
	done
	die "$2 does not apply; nothing was changed"
}

# In $stage, a scratch git tree of only the files that $series touches: stock as the
# first commit, tagged "stock", then the series, then the patch $mutant, if one is set. The
# stock files are taken from the tree $1.
series_stage() {
	scratch_in "$WF_BUILD"
	stage=$scratch
	git -c init.defaultBranch=wholefolio init -q "$stage" || die "cannot write to $(short "$WF_BUILD")"
	series_touches | source_files "$1" "$stage"
	wf_git -C "$stage" add -A
	wf_git -C "$stage" commit -q --allow-empty -m "Linux $source_version"
	git -C "$stage" tag stock
	series_apply "$stage"
	[ -z "${mutant-}" ] || git -C "$stage" apply "$mutant" 2>/dev/null ||
		die "$(short "$mutant") does not apply to the patched kernel"
	[ -z "${mutant-}" ] || wf_git -C "$stage" commit -qam "${mutant##*/}"
}
