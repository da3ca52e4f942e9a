// SPDX-License-Identifier: GPL-2.0
/*
 * Rows, skips and failures; the table and the JSON file.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <jansson.h>

#include "measure.h"

#define COARSE	10000	/* ns: a step of the clock that spoils single stores */

struct result {
	struct where w;
	const char *mode;
	char metric[32];
	double value;
	double spread;
};

struct note {
	struct where w;
	const char *mode;
	char *reason;
	bool failed;
};

static struct result *results;
static size_t nr_results;
static struct note *notes;
static size_t nr_notes;

const char *current_mode;

/**
 * series_add - one more measurement of the same figure
 */
void series_add(struct series *s, double v)
{
	if (!s->n || v < s->min)
		s->min = v;
	if (!s->n || v > s->max)
		s->max = v;
	s->n++;
}

static void add_row(const struct where *w, const char *metric, double value, double spread)
{
	struct result *r;

	if (nr_results % 256 == 0) {
		results = realloc(results, (nr_results + 256) * sizeof(*results));
		if (!results)
			abort();
	}
	r = &results[nr_results++];
	r->w = *w;
	r->mode = current_mode;
	snprintf(r->metric, sizeof(r->metric), "%s", metric);
	r->value = value;
	r->spread = spread;
}

/**
 * row - a figure that is known exactly
 */
void row(const struct where *w, const char *metric, double value)
{
	add_row(w, metric, value, 0);
}

/**
 * row_scaled - a figure per something: the least of a series over @divisor
 */
void row_scaled(const struct where *w, const char *metric, const struct series *s,
		double divisor)
{
	add_row(w, metric, s->min / divisor, s->min > 0 ? (s->max - s->min) / s->min : 0);
}

/**
 * row_series - the least of a series, with its spread (max - min) / min
 */
void row_series(const struct where *w, const char *metric, const struct series *s)
{
	row_scaled(w, metric, s, 1);
}

/**
 * rows_mark - note how many rows there are, for rows_copy()
 */
size_t rows_mark(void)
{
	return nr_results;
}

/**
 * rows_copy - file the rows of a run under a mode as well
 * @from: first row
 * @to: the row after the last
 * @mode: the mode; must stay valid
 */
void rows_copy(size_t from, size_t to, const char *mode)
{
	const char *now_mode = current_mode;
	size_t i;

	current_mode = mode;
	for (i = from; i < to; i++) {
		struct result r = results[i];

		add_row(&r.w, r.metric, r.value, r.spread);
	}
	current_mode = now_mode;
}

static void add_note(const struct where *w, bool failed, const char *fmt, va_list ap)
{
	struct note *n;

	notes = realloc(notes, (nr_notes + 1) * sizeof(*notes));
	if (!notes)
		abort();
	n = &notes[nr_notes++];
	n->w = *w;
	n->mode = current_mode;
	n->failed = failed;
	if (vasprintf(&n->reason, fmt, ap) < 0)
		abort();
}

/**
 * skip - a case that this kernel or these permissions do not allow
 * @w: the case
 * @fmt: the reason, and what would allow it
 */
void skip(const struct where *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_note(w, false, fmt, ap);
	va_end(ap);
}

/**
 * fail - a case whose precondition does not hold, or that went wrong
 *
 * Said at once and again at the end; the program's exit status will be 1.
 */
void fail(const struct where *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_note(w, true, fmt, ap);
	va_end(ap);
	progress_done();
	fprintf(stderr, "FAILED %s %s %u KiB: %s\n", w->experiment, w->name, w->kb,
		notes[nr_notes - 1].reason);
}

/**
 * failures - how many cases failed so far
 */
unsigned int failures(void)
{
	unsigned int n = 0;
	size_t i;

	for (i = 0; i < nr_notes; i++)
		n += notes[i].failed;
	return n;
}

/**
 * progress - say on a terminal which case is at work
 */
void progress(const struct where *w)
{
	if (!isatty(2))
		return;
	fprintf(stderr, "\r\033[K%s %s %u KiB%s%s", w->experiment, w->name, w->kb,
		current_mode ? " " : "", current_mode ? current_mode : "");
	fflush(stderr);
}

/**
 * progress_done - take progress()'s line off the terminal
 */
void progress_done(void)
{
	if (isatty(2))
		fputs("\r\033[K", stderr);
}

static void print_value(double v)
{
	if (v == (double)(long long)v && v < 1e15)
		printf(" %15lld", (long long)v);
	else if (v < 10)
		printf(" %15.3f", v);
	else
		printf(" %15.1f", v);
}

static bool same_skip(const struct note *a, const struct note *b)
{
	return !a->failed && !b->failed && a->mode == b->mode &&
	       !strcmp(a->w.experiment, b->w.experiment) && !strcmp(a->reason, b->reason);
}

/* All cases of an experiment that were skipped for one reason, in one line. */
static void print_skips(size_t first)
{
	const struct note *n = &notes[first];
	size_t i;

	for (i = 0; i < first; i++)
		if (same_skip(&notes[i], n))
			return;
	printf("skipped  %s ", n->w.experiment);
	for (i = first; i < nr_notes; i++)
		if (same_skip(&notes[i], n))
			printf("%s%s/%uKB", i > first ? ", " : "", notes[i].w.name,
			       notes[i].w.kb);
	printf(": %s\n", n->reason);
}

/**
 * report_table - print what was measured, skipped and what failed
 */
void report_table(void)
{
	double worst = 0;
	size_t i, wide = 0;

	printf("%-9s %-15s %6s %9s %-15s %15s %7s\n", "", "case", "folio", "memory",
	       "metric", "value", "spread");
	for (i = 0; i < nr_results; i++) {
		const struct result *r = &results[i];
		const struct result *p = i ? r - 1 : NULL;
		bool same = p && !strcmp(p->w.experiment, r->w.experiment) &&
			    !strcmp(p->w.name, r->w.name) && p->w.kb == r->w.kb &&
			    p->mode == r->mode;
		char mem[24];

		snprintf(mem, sizeof(mem), "%zu MiB", r->w.bytes / MB);
		if (same)
			printf("%-9s %-15s %6s %9s", "", "", "", "");
		else
			printf("%-9s %-15s %4uKB %9s", r->w.experiment, r->w.name,
			       r->w.kb, mem);
		printf(" %-15s", r->metric);
		print_value(r->value);
		if (r->spread > 0)
			printf(" %6.2f%%", 100 * r->spread);
		if (r->mode && !same)
			printf("  mode %s", r->mode);
		putchar('\n');
		if (r->spread > worst)
			worst = r->spread;
		wide += r->spread > 0.01;
	}
	for (i = 0; i < nr_notes; i++)
		if (!notes[i].failed)
			print_skips(i);
	for (i = 0; i < nr_notes; i++)
		if (notes[i].failed)
			printf("FAILED   %s %s %u KiB: %s\n", notes[i].w.experiment,
			       notes[i].w.name, notes[i].w.kb, notes[i].reason);
	printf("%zu rows, least of %u runs each; spread over 1%%: %zu rows, worst %.2f%%; "
	       "clock pair %llu, page copy %llu\n", nr_results, opt.repeats, wide,
	       100 * worst, (unsigned long long)clock_cost, (unsigned long long)copy_cost);
	if (clock_step > COARSE)
		printf("The clock advances by %llu ns: too coarse for all but the longest "
		       "figures. In a virtual machine, give the kernel a TSC it trusts "
		       "(tsc=reliable).\n", (unsigned long long)clock_step);
	printf("The figures are nanoseconds of CLOCK_MONOTONIC; under QEMU's icount with shift=0 "
	       "one of these is one instruction.\n");
}

static json_t *json_where(const struct where *w, const char *mode)
{
	json_t *o = json_object();

	json_object_set_new(o, "experiment", json_string(w->experiment));
	json_object_set_new(o, "case", json_string(w->name));
	json_object_set_new(o, "folio_kb", json_integer(w->kb));
	if (mode)
		json_object_set_new(o, "mode", json_string(mode));
	return o;
}

/* Whole numbers as such: they are counts, and compare exactly. */
static json_t *json_number_of(double v)
{
	if (v == (double)(long long)v)
		return json_integer((long long)v);
	return json_real(v);
}

/**
 * report_json - write everything to a file
 *
 * Written beside and renamed, so that there is never half a file; "-" and
 * devices are written in place. Return: 0, or -1 with a message given.
 */
int report_json(const char *path)
{
	json_t *root = json_object(), *rows = json_array(), *skipped = json_array();
	json_t *failed = json_array(), *cal = json_object();
	struct utsname u;
	char tmp[4096];
	bool direct;
	size_t i;
	int err;

	uname(&u);
	for (i = 0; i < nr_results; i++) {
		const struct result *r = &results[i];
		json_t *o = json_where(&r->w, r->mode);

		json_object_set_new(o, "bytes", json_integer((json_int_t)r->w.bytes));
		json_object_set_new(o, "metric", json_string(r->metric));
		json_object_set_new(o, "value", json_number_of(r->value));
		json_object_set_new(o, "spread", json_real(r->spread));
		json_array_append_new(rows, o);
	}
	for (i = 0; i < nr_notes; i++) {
		json_t *o = json_where(&notes[i].w, notes[i].mode);

		json_object_set_new(o, "reason", json_string(notes[i].reason));
		json_array_append_new(notes[i].failed ? failed : skipped, o);
	}
	json_object_set_new(cal, "clock_pair", json_integer((json_int_t)clock_cost));
	json_object_set_new(cal, "clock_step", json_integer((json_int_t)clock_step));
	json_object_set_new(cal, "page_copy", json_integer((json_int_t)copy_cost));
	json_object_set_new(root, "kernel", json_string(u.release));
	json_object_set_new(root, "accel", json_null());
	json_object_set_new(root, "repeats", json_integer(opt.repeats));
	json_object_set_new(root, "calibration", cal);
	json_object_set_new(root, "rows", rows);
	json_object_set_new(root, "skipped", skipped);
	json_object_set_new(root, "failed", failed);

	if (!strcmp(path, "-")) {
		err = json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
		putchar('\n');
	} else {
		direct = !strncmp(path, "/dev/", 5);
		snprintf(tmp, sizeof(tmp), "%s%s", path, direct ? "" : ".tmp");
		err = json_dump_file(root, tmp, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
		if (!err && !direct)
			err = rename(tmp, path);
	}
	json_decref(root);
	if (err) {
		fprintf(stderr, "folio-measure: cannot write %s\n", path);
		return -1;
	}
	return 0;
}
