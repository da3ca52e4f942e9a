// SPDX-License-Identifier: GPL-2.0
/*
 * folio-measure: the command line.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"

struct options opt = { .memory = 256 * MB, .repeats = 3 };

static const struct experiment {
	const char *name;
	void (*run)(void);
	const char *knob;	/* whose modes --modes goes through */
	const char *what;
} experiments[] = {
	{ "reuse", run_reuse, "wp_reuse",
	  "write memory that is exclusive again after fork and the child's exit" },
	{ "cow", run_cow, "wp_copy",
	  "write memory that a living child shares" },
	{ "collapse", run_collapse, "wp_copy",
	  "the same, then let khugepaged make large folios of it" },
	{ "zero", run_zero, NULL,
	  "read all pages first (zero page), then write them" },
	{ "mincore", run_mincore, "mincore_batch",
	  "ask which pages are resident" },
	{ "lazyfree", run_lazyfree, "madv_free_batch",
	  "MADV_FREE of all or parts of memory in large folios" },
	{ "guard", run_guard, NULL,
	  "paths that must not get slower: first touch, fork, exit, munmap, ..." },
};

static void usage(FILE *f)
{
	fprintf(f,
"Usage: folio-measure [options] [experiment...]\n"
"\n"
"Measures what memory in large folios costs on the paths of the kernel that walk or\n"
"fault it, on the kernel that is running now (Linux 5.15 and later). What the kernel or\n"
"the permissions do not allow is skipped, with the reason. As root it sees most: it sets\n"
"the folio sizes it needs (and puts every setting back, whatever ends it) and verifies\n"
"through /proc/kpageflags that the memory is in such folios.\n"
"\n"
"  --quick           less memory, the fewest sizes, two repeats instead of three\n"
"  --only NAME,...   only these experiments (as naming them as arguments)\n"
"  --memory SIZE     memory of the largest write experiment (256M); the others scale;\n"
"                    K, M or G may follow the number\n"
"  --repeats N       how often each figure is measured (3); the least is reported\n"
"  --json FILE       write the results as JSON too (\"-\": only JSON, on standard output)\n"
"  --modes           once more for each mode of the experiment's knob (wp_reuse, wp_copy,\n"
"                    mincore_batch, madv_free_batch), where the kernel has it, with at most\n"
"                    two repeats\n"
"  --allow-swap      may page its own memory out to the swap space in use\n"
"  --list            print the experiments\n"
"  --help            print this\n"
"\n"
"Figures. \"insns\" is a difference of CLOCK_MONOTONIC: instructions under QEMU's icount\n"
"(shift=0), nanoseconds on a real machine. The cost of reading the clock is taken off.\n"
"Of a write loop, what the same loop costs on memory it has just made writable is taken\n"
"off, so that it is the faults' cost. Each figure is the least of the repeats within one\n"
"run, on fresh memory each; \"spread\" is (max - min) / min of them, under icount mostly\n"
"below 1 %%. p50, p99, p999 and max are of single stores, from as many passes of their own;\n"
"each store counts with the least of them, so that a timer tick does not count.\n"
"\"faults\" are the minor faults of the process, \"copied_kb\" pages that became private\n"
"by the writes, \"waste_kb\" those of them never written, \"path_insns\" insns less the\n"
"copies' own, \"large_share\" the share of the memory in folios of 64 KiB and more.\n"
"\n"
"Exit status: 0 all right, 1 a case failed or its precondition did not hold, 2 usage.\n");
}

static void list(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(experiments); i++)
		printf("%-9s %s\n", experiments[i].name, experiments[i].what);
}

static bool select_one(const char *name, bool *chosen)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(experiments); i++) {
		if (!strcmp(name, experiments[i].name)) {
			chosen[i] = true;
			return true;
		}
	}
	fprintf(stderr, "folio-measure: no experiment \"%s\"; --list prints them\n", name);
	return false;
}

static bool select_list(char *names, bool *chosen)
{
	char *save, *name;

	for (name = strtok_r(names, ",", &save); name; name = strtok_r(NULL, ",", &save))
		if (!select_one(name, chosen))
			return false;
	return true;
}

static bool parse_size(const char *s, size_t *out)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (end == s || errno || *s == '-')
		return false;
	switch (*end) {
	case 'k': case 'K':
		v *= KB;
		end++;
		break;
	case 'm': case 'M':
		v *= MB;
		end++;
		break;
	case 'g': case 'G':
		v *= GB;
		end++;
		break;
	}
	if (*end || v < 8 * MB || v > 1024 * GB)
		return false;
	*out = v;
	return true;
}

/*
 * Once more for each mode of the experiment's knob: the words of "never block
 * whole [adaptive]", or 0 and 1 of a plain switch. The mode that is set has
 * just been measured: those rows are filed under its name too.
 */
static void run_modes(const struct experiment *e, size_t from)
{
	struct where w = { .experiment = e->name, .name = "modes" };
	static char names[32][32];
	static unsigned int nr;
	char path[128], line[256] = "", old[64], *word, *save;
	unsigned int repeats = opt.repeats;
	size_t to = rows_mark();
	FILE *f;

	snprintf(path, sizeof(path), THP_DIR "/%s", e->knob);
	f = fopen(path, "r");
	if (!f)
		return;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	if (!setting_get(path, old, sizeof(old)))
		return;
	if (!strchr(line, '['))
		strcpy(line, "0 1");
	if (opt.repeats > 2)
		opt.repeats = 2;
	for (word = strtok_r(line, " []\n", &save); word && nr < ARRAY_SIZE(names);
	     word = strtok_r(NULL, " []\n", &save)) {
		snprintf(names[nr], sizeof(names[nr]), "%s", word);
		current_mode = names[nr++];
		if (!strcmp(word, old))
			rows_copy(from, to, current_mode);
		else if (setting_set(path, word))
			e->run();
		else
			skip(&w, "%s cannot be set; run as root", path);
	}
	setting_set(path, old);
	opt.repeats = repeats;
	current_mode = NULL;
}

int main(int argc, char **argv)
{
	static const struct option longopts[] = {
		{ "quick", no_argument, NULL, 'q' },
		{ "only", required_argument, NULL, 'o' },
		{ "memory", required_argument, NULL, 'm' },
		{ "repeats", required_argument, NULL, 'r' },
		{ "json", required_argument, NULL, 'j' },
		{ "modes", no_argument, NULL, 'M' },
		{ "allow-swap", no_argument, NULL, 's' },
		{ "list", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool chosen[ARRAY_SIZE(experiments)] = { false }, memory = false, repeats = false;
	bool some = false;
	const char *json = NULL;
	unsigned int i;
	size_t from;
	char *end;
	int c;

	/* Before the arguments are taken apart: it starts this program anew. */
	fixed_addresses(argv);
	while ((c = getopt_long(argc, argv, "", longopts, NULL)) != -1) {
		switch (c) {
		case 'q':
			opt.quick = true;
			break;
		case 'o':
			if (!select_list(optarg, chosen))
				return 2;
			break;
		case 'm':
			if (!parse_size(optarg, &opt.memory)) {
				fprintf(stderr, "folio-measure: bad size \"%s\" (8M and more)\n",
					optarg);
				return 2;
			}
			memory = true;
			break;
		case 'r':
			opt.repeats = (unsigned int)strtoul(optarg, &end, 10);
			if (*end || !opt.repeats || opt.repeats > 1000) {
				fprintf(stderr, "folio-measure: bad number of repeats \"%s\"\n",
					optarg);
				return 2;
			}
			repeats = true;
			break;
		case 'j':
			json = optarg;
			break;
		case 'M':
			opt.modes = true;
			break;
		case 's':
			opt.allow_swap = true;
			break;
		case 'l':
			list();
			return 0;
		case 'h':
			usage(stdout);
			return 0;
		default:
			fprintf(stderr, "Try folio-measure --help\n");
			return 2;
		}
	}
	for (; optind < argc; optind++)
		if (!select_one(argv[optind], chosen))
			return 2;
	if (opt.quick && !memory)
		opt.memory = 64 * MB;
	if (opt.quick && !repeats)
		opt.repeats = 2;
	for (i = 0; i < ARRAY_SIZE(experiments); i++)
		some |= chosen[i];

	core_init();
	for (i = 0; i < ARRAY_SIZE(experiments); i++) {
		if (some && !chosen[i])
			continue;
		from = rows_mark();
		experiments[i].run();
		if (opt.modes && experiments[i].knob)
			run_modes(&experiments[i], from);
	}
	progress_done();
	core_exit();

	if (!json || strcmp(json, "-"))
		report_table();
	if (json && report_json(json))
		return 1;
	return failures() ? 1 : 0;
}
