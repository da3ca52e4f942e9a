// SPDX-License-Identifier: GPL-2.0
/*
 * usemem: processes that use memory as the four paths meet it, by stress-ng's stressors.
 *
 * Each runs for a fixed number of its operations with fixed seeds; the time from its first
 * to its last operation is stress-ng's own, by the guest's clock.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

#define YAML	WORKDIR "/stress.yaml"

static const struct stressor {
	const char *name;	/* of the case */
	const char *option;	/* of stress-ng; with "-ops" behind, its number of operations */
	unsigned int ops;	/* of both workers; quick: a quarter */
	size_t bytes;		/* that a worker uses, where an option says so */
	const char *more[4];
} stressors[] = {
	{ "vm", "--vm", 2000, 32 * MB, { "--vm-bytes", "32m", "--vm-method", "rand-set" } },
	{ "fork", "--fork", 16, 0, { "--fork-vm" } },
	{ "mmapfork", "--mmapfork", 8, 16 * MB, { "--mmapfork-bytes", "16m" } },
	{ "mmapcow", "--mmapcow", 10000, 0, { NULL } },
	{ "mmapcow-fork", "--mmapcow", 10000, 0, { "--mmapcow-fork" } },
	{ "mmapcow-free", "--mmapcow", 10000, 0, { "--mmapcow-free" } },
	{ "madvise", "--madvise", 4, 0, { NULL } },
	{ "mincore", "--mincore", 100, 0, { NULL } },
	{ "mremap", "--mremap", 40, 8 * MB, { "--mremap-bytes", "8m" } },
	{ "bigheap", "--bigheap", 4000, 64 * MB, { "--bigheap-bytes", "64m" } },
	{ "malloc", "--malloc", 10000, 0, { "--malloc-bytes", "256k", "--malloc-touch" } },
};

/* A number out of stress-ng's results, or -1. */
static double result(const char *key)
{
	double value = -1;
	char line[256];
	size_t len = strlen(key);
	FILE *f = fopen(YAML, "r");

	while (f && fgets(line, sizeof(line), f)) {
		char *at = line + strspn(line, " ");

		if (!strncmp(at, key, len) && at[len] == ':')
			value = strtod(at + len + 1, NULL);
	}
	if (f)
		fclose(f);
	return value;
}

static bool one(const struct where *w, const struct stressor *s, unsigned int ops,
		struct series *per_op, struct series *faults)
{
	char ops_option[32], ops_text[16], *argv[24];
	double did, seconds;
	struct used used;
	unsigned int n = 0, i;

	snprintf(ops_option, sizeof(ops_option), "%s-ops", s->option);
	snprintf(ops_text, sizeof(ops_text), "%u", ops);
	argv[n++] = "stress-ng";
	argv[n++] = (char *)s->option;
	argv[n++] = "2";
	argv[n++] = ops_option;
	argv[n++] = ops_text;
	for (i = 0; i < ARRAY_SIZE(s->more) && s->more[i]; i++)
		argv[n++] = (char *)s->more[i];
	argv[n++] = "--no-rand-seed";
	argv[n++] = "--metrics";
	argv[n++] = "--temp-path";
	argv[n++] = WORKDIR;
	argv[n++] = "--yaml";
	argv[n++] = YAML;
	argv[n] = NULL;
	unlink(YAML);
	if (!program_run(w, argv, &used))
		return false;
	did = result("bogo-ops");
	seconds = result("wall-clock-time");
	if (did <= 0 || seconds <= 0) {
		fail(w, "stress-ng did nothing; last: %s", program_log());
		return false;
	}
	series_add(per_op, seconds * 1e9 / did);
	series_add(faults, (double)used.faults / did);
	return true;
}

/**
 * run_usemem - the workload "usemem"
 */
void run_usemem(void)
{
	struct where w = { .experiment = "usemem" };
	unsigned int size, i, k;

	for (size = 0; size < ARRAY_SIZE(workload_sizes); size++) {
		w.kb = workload_sizes[size];
		if (!size_wanted(w.kb))
			continue;
		for (i = 0; i < ARRAY_SIZE(stressors); i++) {
			const struct stressor *s = &stressors[i];
			struct series per_op = { 0 }, faults = { 0 };

			w.name = s->name;
			w.bytes = 2 * s->bytes;
			for (k = 0; k < opt.repeats; k++) {
				progress(&w);
				sizes_always(w.kb);
				if (!one(&w, s, opt.quick ? s->ops / 4 : s->ops, &per_op, &faults))
					break;
			}
			if (k < opt.repeats)
				continue;
			rows_ops(&w, &per_op);
			row_series(&w, "faults_per_op", &faults);
		}
	}
}
