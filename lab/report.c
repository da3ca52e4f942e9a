// SPDX-License-Identifier: GPL-2.0
/*
 * Merges what folio-measure wrote on stock and on ours into compare.json and
 * prints the table.
 *
 *   report --out FILE --accel A [--set KEY=VALUE]... STOCK OURS [STOCK-MT OURS-MT]
 *
 * The second pair is from a boot with several CPUs and real concurrency, under
 * accelerator "tcg"; only its "threads" cases are taken. Where the accelerator does
 * not count instructions, "insns" are nanoseconds and are called so.
 */
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rows.h"

static bool colour;

static bool same_row(const json_t *a, const json_t *b)
{
	return same_case(a, b) && !strcmp(str(a, "metric"), str(b, "metric")) &&
	       !strcmp(str(a, "mode"), str(b, "mode"));
}

/* Find the row for the same figure in another list, or NULL. */
static json_t *row_find(const json_t *rows, const json_t *like)
{
	json_t *r;
	size_t i;

	json_array_foreach(rows, i, r)
		if (same_row(r, like))
			return r;
	return NULL;
}

/* insns -> ns, insns_per_page -> ns_per_page, path_insns -> path_ns; 10^9 of them: a second */
static json_t *metric_name(const char *name, const char *accel)
{
	const char *at = strstr(name, "insns");

	if (!at || !strcmp(accel, "icount"))
		return json_string(name);
	if (!strcmp(name, "ops_per_ginsns"))
		return json_string("ops_per_s");
	return json_sprintf("%.*sns%s", (int)(at - name), name, at + strlen("insns"));
}

/*
 * A row of the result, from a row of both; ratio is null where stock has
 * nothing and ours has something.
 */
static json_t *row_merge(json_t *s, json_t *o, const char *accel, bool named)
{
	double stock = num(s, "value"), ours = num(o, "value");
	json_t *r = json_object();
	const char *const keys[] = { "experiment", "case", "folio_kb", "bytes" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		json_object_set(r, keys[i], json_object_get(o, keys[i]));
	json_object_set_new(r, "metric", metric_name(str(o, "metric"), accel));
	json_object_set(r, "stock", json_object_get(s, "value"));
	json_object_set(r, "wholefolio", json_object_get(o, "value"));
	if (stock > 0)
		json_object_set_new(r, "ratio", json_real(ours / stock));
	else
		json_object_set_new(r, "ratio", ours > 0 ? json_null() : json_real(1));
	json_object_set_new(r, "spread", json_real(fmax(num(s, "spread"), num(o, "spread"))));
	if (named)
		json_object_set_new(r, "accel", json_string(accel));
	return r;
}

/* ---- what goes into compare.json ---------------------------------------- */

struct merged {
	json_t *rows;		/* stock and ours as they come */
	json_t *modes;		/* ours, once per mode of a switch, beside stock */
	json_t *skipped;
	json_t *failed;
};

static void take_notes(json_t *to, const json_t *from, const char *key, const char *kernel,
		       bool threads_too)
{
	json_t *n;
	size_t i;

	json_array_foreach(json_object_get(from, key), i, n) {
		if (!threads_too && starts(str(n, "case"), "threads"))
			continue;
		n = json_copy(n);
		json_object_set_new(n, "kernel", json_string(kernel));
		json_array_append_new(to, n);
	}
}

static void merge(struct merged *m, const json_t *stock, const json_t *ours,
		  const char *accel, bool only_threads, bool more_follows)
{
	json_t *srows = json_object_get(stock, "rows"), *o, *s;
	size_t i;

	json_array_foreach(json_object_get(ours, "rows"), i, o) {
		if (only_threads && !starts(str(o, "case"), "threads"))
			continue;
		if (*str(o, "mode")) {
			json_t *plain = json_copy(o), *r;

			json_object_del(plain, "mode");
			s = row_find(srows, plain);
			if (s) {
				r = row_merge(s, o, accel, only_threads);
				json_object_set(r, "mode", json_object_get(o, "mode"));
				json_array_append_new(m->modes, r);
			}
			json_decref(plain);
			continue;
		}
		s = row_find(srows, o);
		if (s) {
			json_array_append_new(m->rows, row_merge(s, o, accel, only_threads));
		} else {
			json_t *n = json_copy(o);

			json_object_set_new(n, "kernel", json_string("stock"));
			json_object_set_new(n, "reason", json_string("measured on ours only"));
			json_array_append_new(m->skipped, n);
		}
	}
	if (!only_threads) {
		take_notes(m->skipped, stock, "skipped", "stock", !more_follows);
		take_notes(m->skipped, ours, "skipped", "ours", !more_follows);
	}
	take_notes(m->failed, stock, "failed", "stock", true);
	take_notes(m->failed, ours, "failed", "ours", true);
}

/* ---- the table ------------------------------------------------------------ */

static void put_count(double v, int width)
{
	char text[32];

	printf(" %*s", width, count_text(text, sizeof(text), v));
}

static void put_ratio(const json_t *row, int width)
{
	double ratio = num(row, "ratio");
	const char *on = "", *off = "";

	if (colour && row && (loses(row) || gain(row) >= 1.25)) {
		on = loses(row) ? "\033[31m" : "\033[32m";
		off = "\033[0m";
	}
	if (!row)
		printf(" %*s", width, "");
	else if (isnan(ratio))
		printf(" %s%*s%s", on, width, "new", off);
	else
		printf(" %s%*.*f%s", on, width, ratio < 100 ? 3 : 0, ratio, off);
}

static void put_folio(int kb)
{
	char text[32];

	printf(" %7s", folio_text(text, sizeof(text), kb));
}

static bool has(const json_t *rows, const char *experiment, const char *metric)
{
	json_t *r;
	size_t i;

	json_array_foreach(rows, i, r)
		if (!strcmp(str(r, "experiment"), experiment) &&
		    !strcmp(str(r, "metric"), metric))
			return true;
	return false;
}

/* Of single stores, percentiles are ratios beside the cost; of programs, see print_figures(). */
static bool is_program(const json_t *rows, const char *experiment)
{
	return has(rows, experiment, "ops_per_ginsns") || has(rows, experiment, "ops_per_s");
}

static void print_costs(const json_t *rows, const char *experiment)
{
	bool program = is_program(rows, experiment), faults = has(rows, experiment, "faults");
	const char *fault = program && !faults ? "faults_per_op" : "faults";
	bool stores = faults && has(rows, experiment, "p99");
	json_t *r, *cost;
	size_t i;

	printf("\n%-16s %7s %10s %10s %6s", experiment, "folio", "stock", "ours", "ratio");
	if (faults || program)
		printf(" %9s", "faults:");
	if (stores)
		printf(" %6s %6s", "p99:", "max:");
	else
		printf(" %8s", "spread");
	putchar('\n');
	json_array_foreach(rows, i, r) {
		if (strcmp(str(r, "experiment"), experiment) || !first_of_case(rows, i))
			continue;
		cost = main_row(rows, r);
		if (!cost)
			continue;
		printf("  %-14.14s", str(r, "case"));
		put_folio(folio(r));
		put_count(num(cost, "stock"), 10);
		put_count(num(cost, "wholefolio"), 10);
		put_ratio(cost, 6);
		if (faults || program)
			put_ratio(metric_of(rows, r, fault), 9);
		if (stores) {
			put_ratio(metric_of(rows, r, "p99"), 6);
			put_ratio(metric_of(rows, r, "max"), 6);
		} else {
			printf(" %7.1f%%", 100 * num(cost, "spread"));
		}
		printf("%s%s\n", loses(cost) ? " <" : "", *str(cost, "accel") ? " ns" : "");
	}
}

/* Up to this many of an experiment's other figures are columns of one table. */
#define FIGURES	3

struct figure {
	const char *metric, *title;
};

static const struct figure memory[] = {
	{ "copied_kb", "copied" }, { "waste_kb", "unused" }, { "cow_kb", "cow KiB" },
	{ "peak_kb", "peak KiB" }, { "large_share", "large" }, { NULL, NULL },
};

static const struct figure latency[] = {
	{ "p99", "p99" }, { "p999", "p99.9" }, { "max", "max" }, { NULL, NULL },
};

static const struct figure other[] = {
	{ "faults_per_op", "faults" }, { "folios_per_mib", "per MiB" }, { "fork_us", "fork us" },
	{ NULL, NULL },
};

/* Those of the figures that the experiment has, side by side; cases without any are left out. */
static void print_figures(const json_t *rows, const char *experiment, const struct figure *all)
{
	const struct figure *f[FIGURES];
	size_t nr = 0, i, k;
	json_t *r, *m;

	for (; all->metric && nr < FIGURES; all++)
		if (has(rows, experiment, all->metric))
			f[nr++] = all;
	if (!nr)
		return;
	printf("\n%-16s %7s", experiment, "folio");
	for (k = 0; k < nr; k++)
		printf(" %8s %8s", f[k]->title, "ours");
	putchar('\n');
	json_array_foreach(rows, i, r) {
		if (strcmp(str(r, "experiment"), experiment) || !first_of_case(rows, i))
			continue;
		for (k = 0; k < nr && !metric_of(rows, r, f[k]->metric); k++)
			;
		if (k == nr)
			continue;
		printf("  %-14.14s", str(r, "case"));
		put_folio(folio(r));
		for (k = 0; k < nr; k++) {
			m = metric_of(rows, r, f[k]->metric);
			if (m && strstr(f[k]->metric, "share")) {
				printf(" %7.0f%% %7.0f%%", 100 * num(m, "stock"),
				       100 * num(m, "wholefolio"));
			} else {
				put_count(num(m, "stock"), 8);
				put_count(num(m, "wholefolio"), 8);
			}
		}
		putchar('\n');
	}
}

/* One line per case, one column per mode. */
static void print_modes(const json_t *modes, const char *experiment)
{
	const char *names[8];
	size_t nr = 0, i, k;
	json_t *r, *m, *cost;

	json_array_foreach(modes, i, r) {
		if (strcmp(str(r, "experiment"), experiment))
			continue;
		for (k = 0; k < nr && strcmp(names[k], str(r, "mode")); k++)
			;
		if (k == nr && nr < 5)
			names[nr++] = str(r, "mode");
	}
	printf("\n%-16s %7s %10s", experiment, "folio", "stock");
	for (k = 0; k < nr; k++)
		printf(" %10.10s", names[k]);
	putchar('\n');
	json_array_foreach(modes, i, r) {
		if (strcmp(str(r, "experiment"), experiment) || !first_of_case(modes, i))
			continue;
		cost = main_row(modes, r);
		if (!cost)
			continue;
		printf("  %-14.14s", str(r, "case"));
		put_folio(folio(r));
		put_count(num(cost, "stock"), 10);
		for (k = 0; k < nr; k++) {
			double v = NAN;
			size_t j;

			json_array_foreach(modes, j, m)
				if (same_case(m, r) && !strcmp(str(m, "mode"), names[k]) &&
				    !strcmp(str(m, "metric"), str(cost, "metric")))
					v = num(m, "wholefolio");
			put_count(v, 10);
		}
		putchar('\n');
	}
}

static void print_losers(const json_t *rows)
{
	size_t i, n = 0;
	json_t *r;

	json_array_foreach(rows, i, r) {
		if (!loses(r))
			continue;
		if (!n++)
			printf("\nWhere ours is worse by more than 1 %%:\n");
		printf("  %-8s %-14s", str(r, "experiment"), str(r, "case"));
		put_folio(folio(r));
		printf(" %-14s", str(r, "metric"));
		put_count(num(r, "stock"), 10);
		put_count(num(r, "wholefolio"), 10);
		put_ratio(r, 6);
		putchar('\n');
	}
	if (!n)
		printf("\nNowhere is ours worse by more than 1 %%.\n");
}

/* Each reason once, with the cases it holds for. */
static void print_notes(const char *title, const json_t *notes)
{
	json_t *n, *o;
	size_t i, k;

	json_array_foreach(notes, i, n) {
		bool said = false;
		int cases = 0;

		json_array_foreach(notes, k, o) {
			if (strcmp(str(o, "reason"), str(n, "reason")) ||
			    strcmp(str(o, "kernel"), str(n, "kernel")))
				continue;
			said |= k < i;
			cases++;
		}
		if (said)
			continue;
		printf("%s on %s: %s %s %d KiB", title, str(n, "kernel"), str(n, "experiment"),
		       str(n, "case"), folio(n));
		if (cases > 1)
			printf(" and %d more", cases - 1);
		printf(": %s\n", str(n, "reason"));
	}
}

static void print_all(const struct merged *m, const json_t *out)
{
	const char *accel = str(out, "accel");
	json_t *r;
	size_t i;

	printf("Linux %s against %s.\n%s.\n", str(out, "base_version"), str(out, "series"),
	       !strcmp(accel, "icount") ?
	       "Figures are instructions under QEMU's icount" :
	       "Figures are nanoseconds, and not exact");
	if (*str(out, "workload"))
		printf("Programs: %s.\n"
		       "Where a line counts operations, it is by 10^9 of these, and more is better.\n"
		       "\"large\" is the share of memory in folios of 64 KiB and more, \"per MiB\" the\n"
		       "number of folios. Each figure is the best of %d, \"spread\" their (worst - best) /\n"
		       "best. A line that ends in \"<\" got slower.\n",
		       str(out, "programs"), (int)num(out, "repeats"));
	else
		printf("Ratios are ours / stock, also under \"faults:\", \"p99:\" and \"max:\" (of single\n"
		       "stores). A line that ends in \"<\" got slower; \"ns\" marks time, of several CPUs.\n");
	json_array_foreach(m->rows, i, r) {
		if (!first_of_experiment(m->rows, i))
			continue;
		print_costs(m->rows, str(r, "experiment"));
		print_figures(m->rows, str(r, "experiment"), memory);
		if (!is_program(m->rows, str(r, "experiment")))
			continue;
		print_figures(m->rows, str(r, "experiment"), latency);
		print_figures(m->rows, str(r, "experiment"), other);
	}
	if (json_array_size(m->modes))
		printf("\nThe modes of the switch side by side, on the same kernel:\n");
	json_array_foreach(m->modes, i, r)
		if (first_of_experiment(m->modes, i))
			print_modes(m->modes, str(r, "experiment"));
	print_losers(m->rows);
	print_notes("Skipped", m->skipped);
	print_notes("FAILED", m->failed);
}

/* ---- */

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "out", required_argument, NULL, 'o' },
		{ "accel", required_argument, NULL, 'a' },
		{ "set", required_argument, NULL, 's' },
		{ NULL, 0, NULL, 0 },
	};
	struct merged m = { json_array(), json_array(), json_array(), json_array() };
	const char *path = NULL, *accel = "icount";
	json_t *out = json_object(), *stock, *ours;
	char *tmp, *eq;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'o') {
			path = optarg;
		} else if (c == 'a') {
			accel = optarg;
		} else if (c == 's' && (eq = strchr(optarg, '='))) {
			*eq = 0;
			json_object_set_new(out, optarg, json_string(eq + 1));
		} else {
			return 2;
		}
	}
	if (!path || (argc - optind != 2 && argc - optind != 4))
		return 2;
	json_object_set_new(out, "accel", json_string(accel));
	stock = rows_load(argv[optind]);
	ours = rows_load(argv[optind + 1]);
	merge(&m, stock, ours, accel, false, argc - optind == 4);
	if (argc - optind == 4)
		merge(&m, rows_load(argv[optind + 2]), rows_load(argv[optind + 3]), "tcg", true, false);
	json_object_set(out, "kernel", json_object_get(ours, "kernel"));
	json_object_set(out, "repeats", json_object_get(ours, "repeats"));
	json_object_set(out, "rows", m.rows);
	json_object_set(out, "modes", m.modes);
	json_object_set(out, "skipped", m.skipped);
	json_object_set(out, "failed", m.failed);

	colour = isatty(1) && !getenv("NO_COLOR");
	print_all(&m, out);

	if (asprintf(&tmp, "%s.tmp", path) < 0 ||
	    json_dump_file(out, tmp, JSON_INDENT(1) | JSON_REAL_PRECISION(8)) ||
	    rename(tmp, path)) {
		fprintf(stderr, "wf: cannot write %s\n", path);
		unlink(tmp);
		return 1;
	}
	return json_array_size(m.failed) ? 1 : 0;
}
