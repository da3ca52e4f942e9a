// SPDX-License-Identifier: GPL-2.0
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

#define LOSES	1.01	/* a cost higher than this is marked */

const char *str(const json_t *row, const char *key)
{
	const char *s = json_string_value(json_object_get(row, key));

	return s ? s : "";
}

double num(const json_t *row, const char *key)
{
	json_t *v = json_object_get(row, key);

	return json_is_number(v) ? json_number_value(v) : NAN;
}

int folio(const json_t *row)
{
	return (int)json_integer_value(json_object_get(row, "folio_kb"));
}

bool starts(const char *s, const char *with)
{
	return !strncmp(s, with, strlen(with));
}

json_t *rows_load(const char *path)
{
	json_error_t e;
	json_t *j = json_load_file(path, 0, &e);

	if (!j || !json_is_array(json_object_get(j, "rows"))) {
		fprintf(stderr, "wf: %s is not a complete result: %s\n", path,
			j ? "no rows" : e.text);
		exit(1);
	}
	return j;
}

bool same_case(const json_t *a, const json_t *b)
{
	return !strcmp(str(a, "experiment"), str(b, "experiment")) &&
	       !strcmp(str(a, "case"), str(b, "case")) && folio(a) == folio(b);
}

bool more_is_better(const char *metric)
{
	return strstr(metric, "share") || strstr(metric, "per_s") || strstr(metric, "ops");
}

double gain(const json_t *row)
{
	double stock = num(row, "stock"), ours = num(row, "wholefolio");

	if (stock == ours)
		return 1;
	return more_is_better(str(row, "metric")) ? ours / stock : stock / ours;
}

bool loses(const json_t *row)
{
	return gain(row) * LOSES < 1;
}

json_t *metric_of(const json_t *rows, const json_t *like, const char *metric)
{
	json_t *r;
	size_t i;

	json_array_foreach(rows, i, r)
		if (same_case(r, like) && !strcmp(str(r, "metric"), metric))
			return r;
	return NULL;
}

json_t *main_row(const json_t *rows, const json_t *like)
{
	static const char *const leading[] = {
		"insns", "insns_per_page", "ns", "ns_per_page", "insns_per_call", "ns_per_call",
		"ops_per_ginsns", "ops_per_s",
	};
	json_t *r;

	for (size_t i = 0; i < sizeof(leading) / sizeof(leading[0]); i++) {
		r = metric_of(rows, like, leading[i]);
		if (r)
			return r;
	}
	return NULL;
}

bool first_of_case(const json_t *rows, size_t at)
{
	const json_t *row = json_array_get(rows, at);

	for (size_t i = 0; i < at; i++)
		if (same_case(json_array_get(rows, i), row))
			return false;
	return true;
}

bool first_of_experiment(const json_t *rows, size_t at)
{
	const char *name = str(json_array_get(rows, at), "experiment");

	for (size_t i = 0; i < at; i++)
		if (!strcmp(str(json_array_get(rows, i), "experiment"), name))
			return false;
	return true;
}

char *count_text(char *text, size_t len, double v)
{
	if (isnan(v))
		snprintf(text, len, "-");
	else if (v >= 1e10)
		snprintf(text, len, "%.2f G", v / 1e9);
	else if (v >= 1e6)
		snprintf(text, len, "%.2f M", v / 1e6);
	else if (v >= 1000 || v == floor(v))
		snprintf(text, len, "%.0f", v);
	else
		snprintf(text, len, "%.*f", v < 1 ? 3 : 1, v);
	return text;
}

char *folio_text(char *text, size_t len, int kb)
{
	if (kb >= 1024)
		snprintf(text, len, "%d MiB", kb / 1024);
	else
		snprintf(text, len, "%d KiB", kb);
	return text;
}
