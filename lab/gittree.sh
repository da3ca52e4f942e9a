# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# $gittree: the whole kernel source in git, the series as commits on top of tag "stock".

# Make it, or bring it up to kernel/. Edits that were not saved are kept, unless $force.
gittree_make() {
	if [ "$(git -C "$gittree" config wholefolio.source 2>/dev/null)" != "$source_id" ]; then
		[ ! -d "$gittree" ] || [ -n "${force-}" ] || { gittree_clean && gittree_alone; }
		gittree_stock
	else
		[ -n "${force-}" ] || gittree_clean
		wf_git -C "$gittree" checkout -q -f -B wholefolio stock
		wf_git -C "$gittree" clean -qfd
	fi
	series=ours
	series_apply "$gittree"
	git -C "$gittree" tag -f saved >/dev/null
}

# Stop if branch wholefolio holds anything that kernel/ does not know. Other branches stay.
gittree_clean() {
	local branch edits

	branch=$(git -C "$gittree" branch --show-current)
	edits=$(git -C "$gittree" status --porcelain)
	[ -z "$edits" ] || [ "$branch" = wholefolio ] ||
		die "$(short "$gittree") is on branch \"$branch\" and holds edits that were not committed; please commit them there"
	[ -z "$edits" ] &&
		[ "$(git -C "$gittree" rev-parse -q --verify wholefolio)" = "$(git -C "$gittree" rev-parse -q --verify saved)" ] ||
		die "$(short "$gittree") holds edits that were not saved; ./wf tree --save saves them, ./wf tree --force drops them"
}

# Stop if the tree, which is of another source and is to go, has branches of the user.
gittree_alone() {
	local mine

	mine=$(git -C "$gittree" for-each-ref --format='%(refname:short)' refs/heads | grep -vx wholefolio | paste -sd' ') || :
	[ -z "$mine" ] || die "$(short "$gittree") is of another kernel source and has branches of yours ($mine); move it away, or ./wf tree --force drops it"
}

gittree_stock() {
	local log=$WF_LOG/tree.log

	scratch_in "$WF_BUILD"
	source_unpack "$scratch" whole
	git -c init.defaultBranch=wholefolio init -q "$scratch"
	step "Putting the stock source into git" "$log" : gittree_first "$scratch" ||
		die "git cannot commit the stock source: $(why "$log") (log: $(short "$log"))"
	git -C "$scratch" tag stock
	git -C "$scratch" config wholefolio.source "$source_id"
	# beside a measurement, nothing else is to run
	git -C "$scratch" config gc.auto 0
	rm -rf "$gittree"
	mv "$scratch" "$gittree"
}

# Debian's .gitignore ignores everything but debian/: those lines would hide new files.
gittree_first() {
	sed -i '/^# Debian packaging: ignore everything/,$d' "$1/.gitignore"
	wf_git -C "$1" -c core.compression=1 add -A -f &&
		wf_git -C "$1" commit -q -m "Linux $source_version

The stock source, as it was unpacked."
}

# Write the commits since "stock" back to kernel/.
gittree_save() {
	local k=$WF_TOP/kernel out c name names=() message new f prev=stock

	c=$(git -C "$gittree" branch --show-current)
	[ "$c" = wholefolio ] ||
		die "$(short "$gittree") is on branch \"$c\"; what is saved is branch wholefolio: git -C $(short "$gittree") checkout wholefolio"
	gittree_commit_edits
	[ -z "$(git -C "$gittree" rev-list --merges stock..)" ] || die "$(short "$gittree"): merges cannot be saved; please rebase"
	scratch_in "$WF_BUILD"
	out=$scratch
	mkdir "$out/hooks"
	sed -n '/^#/p' "$k/series" >"$out/series"
	while read -r c; do
		name=$(gittree_name "$c")
		[[ " ${names[*]} " != *" $name "* ]] || die "two patches would be called $name; please give them other subjects"
		names+=("$name")
		# What stock does not have are files of our own: they go as they are at the end.
		new=
		while read -r f; do
			[ -e "$gittree/$f" ] || continue
			new+=" $f"
			mkdir -p "$out/new/$(dirname "$f")"
			cp "$gittree/$f" "$out/new/$f"
		done < <(git -C "$gittree" diff --no-renames --diff-filter=A --name-only "$prev" "$c")
		gittree_line "$name" "$new" >>"$out/series"
		gittree_hook_kept "$prev" "$c" "$name" >"$out/hooks/$name.patch"
		prev=$c
	done < <(git -C "$gittree" rev-list --reverse stock..)

	# Files that no patch brings any more go; the rest is written where it differs.
	series_lines | cut -s -d' ' -f2- | tr -s ' ' '\n' | sed '/^$/d' | while read -r f; do
		[ -e "$out/new/$f" ] || [[ $(series_file "$f") != "$k"/* ]] || rm -fv "$k/$f" >&2
	done
	for f in "$k"/hooks/*.patch; do
		[ -e "$out/hooks/${f##*/}" ] || rm -fv "$f" >&2
	done
	(cd "$out" && find hooks series -type f) | while read -r f; do gittree_put "$out/$f" "$k/$f"; done
	[ ! -d "$out/new" ] || (cd "$out/new" && find . -type f -printf '%P\n') |
		while read -r f; do
			# What was not edited in the tree may have been edited here since.
			[ -e "$(series_file "$f")" ] && git -C "$gittree" diff --quiet saved HEAD -- "$f" ||
				gittree_put "$out/new/$f" "$(series_file "$f")"
		done
	git -C "$gittree" tag -f saved >/dev/null
}

# The hook of commit $2 upon $1: its message, and the lines it changes in files that stock has.
gittree_hook() {
	git -C "$gittree" log -1 --format=%B "$2" | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
	echo "---"
	git -C "$gittree" diff --no-renames --name-only "$1" "$2" | gittree_stock_only |
		xargs -r -d '\n' git -C "$gittree" diff --no-renames --no-color --no-ext-diff "$1" "$2" -- |
		sed '/^diff --git /d; /^index [0-9a-f]*\.\./d; s/^\(@@ -[0-9,]* +[0-9,]* @@\).*/\1/'
}

# The same, for patch $3. What was not edited in the tree may have been edited in kernel/
# since: that stays. Edited in both is for the user to put together.
gittree_hook_kept() {
	local file=$WF_TOP/kernel/hooks/$3.patch new old

	new=$(gittree_hook "$1" "$2")
	old=$(git -C "$gittree" log --format=%H --fixed-strings --grep="$(git -C "$gittree" log -1 --format=%s "$2")" -1 stock..saved 2>/dev/null) || :
	[ -z "$old" ] || old=$(gittree_hook "$old~" "$old")
	if [ -z "$old" ] || [ ! -f "$file" ] || [[ $(cat "$file") = @("$old"|"$new") ]]; then
		echo "$new"
	elif [ "$old" = "$new" ]; then
		cat "$file"
	else
		die "$(short "$file") was edited since $(short "$gittree") was made, and its commit there as well; please put the edits into one of the two"
	fi
}

# The line of the series for patch $1 with the new files $2: as it is, if it names those.
gittree_line() {
	local old

	old=$(series_lines | grep "^$1 ") || :
	[ "$(tr -s ' ' '\n' <<<"$old" | sort)" = "$(tr -s ' ' '\n' <<<"$1$2" | sort)" ] || old=$1$2
	echo "$old"
}

gittree_put() {
	! cmp -s "$1" "$2" || return 0
	mkdir -p "${2%/*}"
	cp "$1" "$2.tmp" && mv "$2.tmp" "$2" || die "cannot write $(short "$2")"
	say "saved $(short "$2")"
}

# Of the files named on standard input those that stock has.
gittree_stock_only() {
	while read -r f; do
		! git -C "$gittree" cat-file -e "stock:$f" 2>/dev/null || printf '%s\n' "$f"
	done
}

# The name of the patch that commit $1 is: the one with that subject, or a new one.
gittree_name() {
	local subject name rest

	subject=$(git -C "$gittree" log -1 --format=%s "$1")
	while read -r name rest; do
		if [ "$(head -n1 "$WF_TOP/kernel/hooks/$name.patch" 2>/dev/null)" = "$subject" ]; then
			echo "$name"
			return
		fi
	done < <(series_lines)
	sed 's/^mm[:/] *//; s/[^A-Za-z0-9]\+/-/g; s/^-//; s/-$//' <<<"$subject" | tr '[:upper:]' '[:lower:]' | cut -c1-40
}

# Edits that were not committed join the last commit that touched their file.
gittree_commit_edits() {
	local f c

	wf_git -C "$gittree" add -A
	[ -n "$(git -C "$gittree" diff --cached --name-only)" ] || return 0
	[ -n "$(git -C "$gittree" rev-list stock..)" ] || die "commit the edits in $(short "$gittree") first: there is no patch that they could join"
	wf_git -C "$gittree" reset -q
	git -C "$gittree" status --porcelain --untracked-files=all --no-renames | cut -c4- | while read -r f; do
		c=$(git -C "$gittree" log -1 --format=%H stock.. -- "$f")
		[ -n "$c" ] || c=$(git -C "$gittree" rev-parse HEAD)
		while [[ $(git -C "$gittree" log -1 --format=%s "$c") = fixup!* ]]; do
			c=$(git -C "$gittree" log -1 --format=%H "$c~" -- "$f")
			[ -n "$c" ] || c=$(git -C "$gittree" log --format=%H --grep='^fixup!' --invert-grep -1 stock..)
		done
		wf_git -C "$gittree" add -A -- "$f"
		wf_git -C "$gittree" commit -q --fixup="$c"
	done
	GIT_SEQUENCE_EDITOR=: wf_git -C "$gittree" rebase -q -i --autosquash stock >"$WF_LOG/tree.log" 2>&1 || {
		git -C "$gittree" rebase --abort
		die "edits in $(short "$gittree") do not fit the commit they would join; they are kept as fixup! commits: please rebase by hand (log: $(short "$WF_LOG/tree.log"))"
	}
}
