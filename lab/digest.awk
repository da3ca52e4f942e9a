# SPDX-License-Identifier: GPL-2.0
# Compares what the checker's --digest said of the same sequences on stock (the first
# file) and on ours: prints what differs and may not, or one line of figures, and exits 1
# or 0. A line is
#
#   digest SEED STEP OP p=P bytes=… perm=… mincore=… resident=PAGES written=KB memory=KB
#
# Bytes and permissions are the same, step for step. mincore() is as well, but that a
# write to the zero page may bring in a large folio on ours: then more is resident, never
# less. In episodes with an odd seed nobody reads what nobody wrote, which leaves few such.
# There the memory of ours is, on average and at its peak, at most the bound of path 2
# above stock's: 1.5 times what was written since the last fork. Measured step by step, a
# peak may hold one more folio of 2 MiB that stock has given back by then.

function value(i) { return substr($i, index($i, "=") + 1) }

/^digest / {
	gsub(/\r/, "")
	key = $2 " " $3
	odd = $2 % 2
	if (FILENAME != ours) {
		if (ours == "")
			ours = ARGV[2]
		line[key] = $4 " " $5 " " $6 " " $7
		mincore[key] = $8
		resident[key] = value(9)
		memory[key] = value(11)
		n_stock++
		next
	}
	n++
	if (!(key in line)) {
		wrong = wrong "\nseed " $2 " step " $3 ": only on ours"
		next
	}
	if (line[key] != $4 " " $5 " " $6 " " $7)
		wrong = wrong "\nseed " $2 " step " $3 ": stock " line[key] ", ours " $4 " " $5 " " $6 " " $7
	if (mincore[key] != $8) {
		differ[odd]++
		if (value(9) + 0 <= resident[key] + 0)
			wrong = wrong "\nseed " $2 " step " $3 ": mincore differs, " value(9) " pages resident, on stock " resident[key]
	}
	if (odd) {
		steps[$2]++
		sum[$2] += value(11) - memory[key]
		sum_stock += memory[key]
		written[$2] += value(10)
		if (value(11) + 0 > peak[$2]) peak[$2] = value(11) + 0
		if (memory[key] + 0 > peak_stock[$2]) peak_stock[$2] = memory[key] + 0
		if (value(10) + 0 > most[$2]) most[$2] = value(10) + 0
		n_odd++
	}
}

END {
	if (!n || n != n_stock)
		wrong = wrong "\n" n_stock + 0 " steps on stock, " n + 0 " on ours"
	for (s in steps) {
		total += sum[s]
		if (sum[s] > 1.5 * written[s])
			wrong = wrong sprintf("\nseed %d: %d KiB more than stock on average, written %d KiB", s, sum[s] / steps[s], written[s] / steps[s])
		if (peak[s] > peak_stock[s] + 1.5 * most[s] + 2048)
			wrong = wrong sprintf("\nseed %d: peak %d KiB, stock %d KiB, written %d KiB", s, peak[s], peak_stock[s], most[s])
	}
	if (wrong != "") {
		print substr(wrong, 2)
		exit 1
	}
	printf "%d steps; mincore shows more resident in %d (odd seeds) and %d (even); memory of ours %+.1f %%\n",
		n, differ[1], differ[0], 100 * total / sum_stock
}
