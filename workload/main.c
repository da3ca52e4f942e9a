// SPDX-License-Identifier: GPL-2.0
/*
 * folio-workload: the command line.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "workload.h"

struct options opt = { .memory = 128 * MB, .repeats = 3 };

const unsigned int workload_sizes[3] = { 4, 64, 2048 };

static unsigned int only_kb;

static const struct workload {
	const char *name;
	void (*run)(void);
} workloads[] = {
	{ "redis", run_redis },
	{ "valkey", run_valkey },
	{ "usemem", run_usemem },
	{ "jemalloc", run_jemalloc },
	{ "residency", run_residency },
};

/**
 * size_wanted - are cases of this folio size to run?
 */
bool size_wanted(unsigned int kb)
{
	return !only_kb || only_kb == kb;
}

static void usage(FILE *f)
{
	fprintf(f,
"Usage: folio-workload [--quick] [--folio KIB] [--repeats N] [--set SWITCH=VALUE]... [--json FILE]\n"
"                      WORKLOAD\n"
"\n"
"Runs real programs, which are in " PROGRAMS ", with anonymous memory of every program in\n"
"folios of 4 (off), 64 and 2048 KiB. Needs root and a machine of its own: see wf workload.\n"
"The rows are folio-measure's: each figure is the best of the repeats, \"spread\" their\n"
"(max - min) / min. Exit status: 0 all right, 1 a case failed, 2 usage.\n");
}

/* SWITCH=VALUE, in THP_DIR; a kernel that has no such switch is left as it is. */
static bool switch_set(const char *set)
{
	const char *eq = strchr(set, '=');
	char path[256];

	snprintf(path, sizeof(path), THP_DIR "/%.*s", eq ? (int)(eq - set) : 0, set);
	if (eq && (access(path, F_OK) || setting_set(path, eq + 1)))
		return true;
	fprintf(stderr, "folio-workload: \"%s\" cannot be set\n", set);
	return false;
}

int main(int argc, char **argv)
{
	static const struct option longopts[] = {
		{ "quick", no_argument, NULL, 'q' },
		{ "folio", required_argument, NULL, 'f' },
		{ "repeats", required_argument, NULL, 'r' },
		{ "set", required_argument, NULL, 's' },
		{ "json", required_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const struct workload *todo = NULL;
	struct sched_param sp = { 0 };
	const char *json = NULL, *sets[8];
	unsigned int i, nr_sets = 0;
	int c;

	while ((c = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
		switch (c) {
		case 'q':
			opt.quick = true;
			opt.memory = 32 * MB;
			opt.repeats = 2;
			break;
		case 'f':
			only_kb = (unsigned int)atoi(optarg);
			break;
		case 'r':
			opt.repeats = (unsigned int)atoi(optarg);
			break;
		case 's':
			if (nr_sets < ARRAY_SIZE(sets))
				sets[nr_sets++] = optarg;
			break;
		case 'j':
			json = optarg;
			break;
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	for (i = 0; optind + 1 == argc && i < ARRAY_SIZE(workloads); i++)
		if (!strcmp(argv[optind], workloads[i].name))
			todo = &workloads[i];
	if (!todo || !opt.repeats) {
		usage(stderr);
		return 2;
	}
	fixed_addresses(argv);
	core_init();
	if (!in_lab()) {
		fprintf(stderr, "folio-workload: this is no machine of its own; use wf workload\n");
		return 2;
	}
	/* programs share the CPU as they do everywhere */
	sched_setscheduler(0, SCHED_OTHER, &sp);
	for (i = 0; i < nr_sets; i++)
		if (!switch_set(sets[i]))
			return 2;
	mkdir(WORKDIR, 0700);
	if (chdir(WORKDIR))
		return 1;
	todo->run();
	progress_done();
	core_exit();

	report_table();
	if (json && report_json(json))
		return 1;
	return failures() ? 1 : 0;
}
