# SPDX-License-Identifier: GPL-2.0
# Reads what the test job of a booted kernel wrote: "wf: run NAME", the (K)TAP of that
# program, "wf: exit STATUS". Prints one line a case, fields separated by tabs:
# pass|fail|skip, program, case, reason.
#
# A line that sums up deeper ones (a KUnit suite) is no case of its own. A program that
# dies, hangs or leaves out what its plan promised has failed, whatever it printed.

function out(what, name, reason) {
	print what "\t" program "\t" name "\t" reason
	n[what]++
}

function finish(status) {
	if (program == "")
		return
	if (status == "")
		out("fail", "(whole)", "the kernel ended while it ran")
	else if (status == 124 || status == 143)
		out("fail", "(whole)", "did not end in time")
	else if (status > 128)
		out("fail", "(whole)", "killed by signal " status - 128 (last == "" ? "" : ": " last))
	else if (status == 4 && !cases)
		out("skip", "(whole)", last == "" ? "says no reason" : last)
	else if (plan != "" && cases_top < plan && status != 4)
		out("fail", "(whole)", "planned " plan " cases, ran " cases_top)
	else if (status != 0 && status != 4 && !bad)
		out("fail", "(whole)", "exit status " status (last == "" ? "" : ": " last))
	else if (!cases)
		out("skip", "(whole)", last == "" ? "has no cases" : last)
	program = ""
}

{ gsub(/\r/, ""); gsub(/[^[:print:]\t]/, "") }

/^wf: run / {
	finish("")
	program = $3
	plan = last = ""
	cases = cases_top = bad = 0
	depth = -1
	next
}
/^wf: exit / { finish($3); next }
/^wf: end / { ended = 1; next }
program == "" { next }

/^[ \t]*1\.\.[0-9]+/ {
	if ($0 !~ /^[ \t]/) {
		plan = $1
		sub(/^1\.\./, "", plan)
		plan += 0
		if (match($0, /# *SKIP */))
			last = substr($0, RSTART + RLENGTH)
	}
	next
}
/^[ \t]*(not )?ok [0-9]*/ {
	match($0, /^[ \t]*/)
	indent = RLENGTH
	if (!indent)
		cases_top++
	line = substr($0, indent + 1)
	failed = line ~ /^not /
	sub(/^(not )?ok *[0-9]* *(- *)?/, "", line)
	# The sum of deeper lines above it.
	summary = indent < depth
	depth = indent
	if (summary && !(failed && !bad))
		next
	cases++
	if (match(line, /# *(SKIP|skip|Skip)[^ ]* */)) {
		reason = substr(line, RSTART + RLENGTH)
		line = substr(line, 1, RSTART - 1)
		sub(/ +$/, "", line)
		# kselftest.h has the case and the reason behind the word.
		if (line == "" && (match(reason, / \.\.\. with [^:]*: /) || match(reason, /: /))) {
			line = substr(reason, 1, RSTART + RLENGTH - 3)
			reason = substr(reason, RSTART + RLENGTH)
		} else if (line == "") {
			line = reason
			reason = ""
		}
		out("skip", line, reason == "" ? last : reason)
	} else if (failed) {
		bad++
		out("fail", line, last)
	} else {
		out("pass", line, "")
	}
	last = ""
	next
}
/^[ \t]*# / {
	if ($0 !~ /# (Totals|Subtest|module|Planned)/) {
		last = $0
		sub(/^[ \t]*# */, "", last)
	}
	next
}
NF { if ($0 !~ /TAP version/) last = $0 }

END { if (!ended) finish(""); else finish(0) }
