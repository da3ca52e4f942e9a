// SPDX-License-Identifier: GPL-2.0
/*
 * jemalloc: alloc-mix under jemalloc, which gives freed memory back by MADV_FREE.
 *
 * What is freed are runs of some pages within large folios (path 4). "now" gives back at
 * once and never by MADV_DONTNEED; "decay" lets a tenth of a second pass first, and gives
 * back for good after a second.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "workload.h"

#define PRELOAD	"LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"

static const struct {
	const char *name;
	const char *conf;
} cases[] = {
	{ "free-now", "MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:-1" },
	{ "free-decay", "MALLOC_CONF=dirty_decay_ms:100,muzzy_decay_ms:1000" },
};

struct figures {
	struct series per_op, faults, large, folios, kb;
};

static bool one(const struct where *w, const char *conf, struct figures *f)
{
	char mib[16], *argv[] = { PRELOAD, (char *)conf, "alloc-mix", mib, "23", NULL };
	double ops, insns;
	struct memory memory;
	struct program p;
	int status;

	snprintf(mib, sizeof(mib), "%zu", w->bytes / MB);
	if (!program_start(&p, w, argv))
		return false;
	/* it stops when it is done, with all its memory */
	if (waitpid(p.pid, &status, WUNTRACED) != p.pid || !WIFSTOPPED(status)) {
		fail(w, "alloc-mix ended before it was done; last: %s", program_log());
		return false;
	}
	series_add(&f->faults, (double)process_faults(p.pid));
	memory = process_memory(p.pid);
	series_add(&f->large, memory.large_share);
	series_add(&f->folios, memory.folios_per_mib);
	series_add(&f->kb, (double)anon_kb());
	kill(p.pid, SIGCONT);
	if (!program_end(&p, NULL))
		return false;
	if (sscanf(program_log(), "%lf %lf", &ops, &insns) != 2 || ops <= 0) {
		fail(w, "alloc-mix says no result; last: %s", program_log());
		return false;
	}
	series_add(&f->per_op, insns / ops);
	return true;
}

/**
 * run_jemalloc - the workload "jemalloc"
 */
void run_jemalloc(void)
{
	struct where w = { .experiment = "jemalloc" };
	unsigned int size, c, i;

	w.bytes = opt.quick ? 16 * MB : 32 * MB;
	for (size = 0; size < ARRAY_SIZE(workload_sizes); size++) {
		w.kb = workload_sizes[size];
		if (!size_wanted(w.kb))
			continue;
		for (c = 0; c < ARRAY_SIZE(cases); c++) {
			struct figures f = { 0 };

			w.name = cases[c].name;
			for (i = 0; i < opt.repeats; i++) {
				progress(&w);
				sizes_always(w.kb);
				if (!one(&w, cases[c].conf, &f))
					break;
			}
			if (i < opt.repeats)
				continue;
			rows_ops(&w, &f.per_op);
			row_series(&w, "faults", &f.faults);
			row_series(&w, "large_share", &f.large);
			row_series(&w, "folios_per_mib", &f.folios);
			row_series(&w, "peak_kb", &f.kb);
		}
	}
}
