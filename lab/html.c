// SPDX-License-Identifier: GPL-2.0
/*
 * Makes one self-contained page out of results: the answer, a table per path, plots by
 * gnuplot with their figures beside them, and how all of it was measured.
 *
 *   html --out DIR FILE...
 *
 * FILEs are compare.json and results of workloads. DIR/index.html is written when all of
 * it is there.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rows.h"

#define MAX_X	24
#define MAX_S	6

static FILE *page;
static const char *dir;

/* What is said of an experiment; others are called by their names. */
static const struct about {
	const char *experiment, *title, *what;
	bool program;		/* a real one, whose figures are all shown */
} abouts[] = {
	{ "reuse", "Path 1: writes after fork and the child's exit",
	  "Memory is populated and shared with a child by fork(); the child exits, and the "
	  "parent writes. Stock takes a fault for each page." },
	{ "cow", "Path 2: writes while the child still lives",
	  "Memory is shared with a child by fork(), and the parent writes to it. Stock copies "
	  "it page by page. The copying itself is counted too." },
	{ "collapse", "Path 2, left to khugepaged",
	  "The same, and then MADV_COLLAPSE makes large folios of what the writes left." },
	{ "zero", "Path 2: every page read first, then written",
	  "Reading maps the shared zero page; the write then has to allocate." },
	{ "mincore", "Path 3: mincore()", "Instructions a page of the range asked about." },
	{ "lazyfree", "Path 4: madvise(MADV_FREE)",
	  "Of all of the memory (full), of 8 KiB in each 2 MiB (partial), and of memory that "
	  "another process shares." },
	{ "guard", "Paths that must not get slower", "Nothing was done for these." },
	{ "redis", "Redis", "SET traffic before BGSAVE, while the child saves, and after its exit.", true },
	{ "valkey", "Valkey", "SET traffic before BGSAVE, while the child saves, and after its exit.", true },
	{ "usemem", "stress-ng", "Processes that map, fork, write and ask, in operations.", true },
	{ "jemalloc", "jemalloc", "Mixed sizes allocated and freed, with MADV_FREE.", true },
	{ "residency", "vmtouch and fincore", "Which pages of a large cached file are in memory.", true },
};

static const struct about *about(const char *experiment)
{
	static struct about other;
	size_t i;

	for (i = 0; i < sizeof(abouts) / sizeof(abouts[0]); i++)
		if (!strcmp(abouts[i].experiment, experiment))
			return &abouts[i];
	other = (struct about){ experiment, experiment, "", true };
	return &other;
}

static void text(const char *s)
{
	for (; *s; s++) {
		if (*s == '<')
			fputs("&lt;", page);
		else if (*s == '>')
			fputs("&gt;", page);
		else if (*s == '&')
			fputs("&amp;", page);
		else if (*s == '"')
			fputs("&quot;", page);
		else
			fputc(*s, page);
	}
}

/* Tags with nothing from outside in them. */
#define put(...)	fprintf(page, __VA_ARGS__)

static const char *ratio_text(double r)
{
	static char t[32];

	if (isnan(r))
		return "new";
	snprintf(t, sizeof(t), "%.*f", r < 100 ? 3 : 0, r);
	return t;
}

static void cell(const char *s)
{
	put("<td class=\"n\">");
	text(s);
	put("</td>");
}

static void count_cell(double v)
{
	char t[32];

	cell(count_text(t, sizeof(t), v));
}

/* What a figure is on stock and on ours; "-" where there is none. */
static void count_cells(const json_t *row)
{
	count_cell(num(row, "stock"));
	count_cell(num(row, "wholefolio"));
}

static void ratio_cell(const json_t *row)
{
	if (!row) {
		put("<td></td>");
		return;
	}
	put("<td class=\"n%s\">%s%s</td>", loses(row) ? " worse" : "",
	    loses(row) ? "&#9650;&#160;" : "", ratio_text(num(row, "ratio")));
}

/* What needs several CPUs is timed, in the results of a run that counts. */
static bool counted(const json_t *r)
{
	return !starts(str(r, "case"), "threads");
}

static void case_cells(const json_t *r)
{
	char t[32];

	put("<th scope=\"row\">");
	text(str(r, "case"));
	put("%s</th>", counted(r) ? "" : " (time)");
	cell(folio(r) ? folio_text(t, sizeof(t), folio(r)) : "-");
}

static void table_begin(const char *caption, const char *const *heads)
{
	put("<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"");
	text(caption);
	put("\"><table><caption>");
	text(caption);
	put("</caption>\n<thead><tr>");
	for (; *heads; heads++) {
		put("<th scope=\"col\">");
		text(*heads);
		put("</th>");
	}
	put("</tr></thead>\n<tbody>\n");
}

static void table_end(void)
{
	put("</tbody></table></div>\n");
}

/* ---- charts: values by place on the x axis and by series, as plot and as table -- */

enum kind { BARS, DOTS, LINES };

struct chart {
	const char *title, *axis;
	enum kind kind;
	bool logscale, relative;
	int nx, ns;
	char x[MAX_X][48], s[MAX_S][48];
	double v[MAX_X][MAX_S];
};

static void chart_begin(struct chart *c, enum kind kind, const char *title, const char *axis)
{
	memset(c, 0, sizeof(*c));
	c->kind = kind;
	c->title = title;
	c->axis = axis;
}

static int place(char names[][48], int *n, int max, const char *name)
{
	int i;

	for (i = 0; i < *n && strcmp(names[i], name); i++)
		;
	if (i == *n) {
		if (*n == max)
			return -1;
		snprintf(names[(*n)++], 48, "%s", name);
	}
	return i;
}

static void chart_set(struct chart *c, const char *x, const char *series, double v)
{
	int old = c->nx, i = place(c->x, &c->nx, MAX_X, x);
	int k = place(c->s, &c->ns, MAX_S, series);

	if (i >= old)
		for (int j = 0; j < MAX_S; j++)
			c->v[i][j] = NAN;
	if (i >= 0 && k >= 0)
		c->v[i][k] = v;
}

/*
 * Grey tones, hatching, dashes and shapes of points tell the series apart, so
 * that no colour is needed.
 */
static void gnuplot_write(FILE *f, const struct chart *c, const char *svg)
{
	static const char *const fill[MAX_S] = {
		"solid 1 lc rgb '#4d4d4d'", "pattern 4 lc rgb '#0b4f9e'",
		"pattern 5 lc rgb '#8a2d0c'", "pattern 2 lc rgb '#1b6b3a'",
		"pattern 1 lc rgb '#5b2d82'", "solid 0.2 lc rgb '#000000'",
	};
	static const char *const line[MAX_S] = {
		"pt 7 ps 0.9 dt 1 lc rgb '#4d4d4d'", "pt 4 ps 1.1 dt 2 lc rgb '#0b4f9e'",
		"pt 9 ps 1.1 dt 3 lc rgb '#8a2d0c'", "pt 12 ps 1.2 dt 4 lc rgb '#1b6b3a'",
		"pt 5 ps 0.9 dt 5 lc rgb '#5b2d82'", "pt 2 ps 1 dt 1 lc rgb '#000000'",
	};
	int i, k;

	fprintf(f, "set terminal svg size 480,380 dynamic font 'sans-serif,16' linewidth 1.5 "
		"background rgb 'white'\nset output '%s'\n", svg);
	fprintf(f, "set ylabel \"%s\"\nset grid ytics lc rgb '#bbbbbb'\n"
		"set border 3\nset tics nomirror\nset key outside top center horizontal font ',14' samplen 2\n"
		"set datafile missing '?'\nset %s\n", c->axis,
		c->logscale ? "logscale y" : "yrange [0:*]");
	fprintf(f, "set xtics %s noenhanced (", c->kind == LINES ? "" : "rotate by -30 left");
	for (i = 0; i < c->nx; i++)
		fprintf(f, "%s\"%s\" %d", i ? ", " : "", c->x[i], i);
	fputs(")\n", f);
	if (c->kind != LINES)
		fputs("set bmargin 4\n", f);
	if (c->relative)
		fputs("set arrow from graph 0, first 1 to graph 1, first 1 nohead dt 3\n", f);
	else if (c->logscale)
		fputs("set format y '10^{%T}'\n", f);
	fputs("$d << EOD\n", f);
	for (i = 0; i < c->nx; i++) {
		fprintf(f, "\"%s\"", c->x[i]);
		for (k = 0; k < c->ns; k++) {
			if (isnan(c->v[i][k]))
				fputs(" ?", f);
			else
				fprintf(f, " %.9g", c->v[i][k]);
		}
		fputc('\n', f);
	}
	fputs("EOD\n", f);
	if (c->kind == BARS)
		fputs("set style histogram clustered gap 1\nset style data histograms\n"
		      "set boxwidth 0.9\n", f);
	else
		fprintf(f, "set xrange [-0.5:%d.5]\n", c->nx - 1);
	for (k = 0; k < c->ns; k++) {
		fputs(k ? ", " : "plot ", f);
		if (c->kind == BARS)
			fprintf(f, "$d using %d fs %s", k + 2, fill[k]);
		else
			fprintf(f, "$d using ($0+%g):%d with %s %s",
				c->kind == DOTS ? 0.13 * (k - (c->ns - 1) / 2.0) : 0, k + 2,
				c->kind == DOTS ? "points" : "linespoints", line[k]);
		fprintf(f, " title \"%s\" noenhanced", c->s[k]);
	}
	fputc('\n', f);
}

static char *read_file(const char *path)
{
	FILE *f = fopen(path, "r");
	char *buf = NULL;
	size_t len = 0;
	ssize_t got;

	if (!f)
		return NULL;
	got = getdelim(&buf, &len, 0, f);
	fclose(f);
	if (got > 0)
		return buf;
	free(buf);
	return NULL;
}

/* gnuplot gives every picture the same ids; on one page each needs its own. */
static void put_svg_body(const char *s, int nr)
{
	static const char *const refs[] = { "id='", "id=\"", "href='#", "href=\"#", "url(#" };
	size_t i;

	while (*s) {
		for (i = 0; i < sizeof(refs) / sizeof(refs[0]); i++)
			if (starts(s, refs[i]))
				break;
		if (i < sizeof(refs) / sizeof(refs[0])) {
			put("%sp%d-", refs[i], nr);
			s += strlen(refs[i]);
		} else {
			fputc(*s++, page);
		}
	}
}

static void chart_table(const struct chart *c)
{
	const char *heads[MAX_S + 2] = { "" };
	int i, k;

	for (k = 0; k < c->ns; k++)
		heads[k + 1] = c->s[k];
	put("<details><summary>The figures of this plot</summary>\n");
	table_begin(c->axis, heads);
	for (i = 0; i < c->nx; i++) {
		put("<tr><th scope=\"row\">");
		text(c->x[i]);
		put("</th>");
		for (k = 0; k < c->ns; k++)
			count_cell(c->v[i][k]);
		put("</tr>\n");
	}
	table_end();
	put("</details>\n");
}

static void die(const char *what)
{
	fprintf(stderr, "wf: %s\n", what);
	exit(1);
}

static void chart_put(const struct chart *c)
{
	char script[4096], svg[4096], command[4400], *body, *from;
	static int nr;
	FILE *f;

	if (!c->nx)
		return;
	snprintf(script, sizeof(script), "%s/plot.gp", dir);
	snprintf(svg, sizeof(svg), "%s/plot.svg", dir);
	f = fopen(script, "w");
	if (!f)
		die("cannot write the plots' scripts");
	gnuplot_write(f, c, svg);
	if (fclose(f))
		die("cannot write the plots' scripts");
	snprintf(command, sizeof(command), "gnuplot '%s'", script);
	if (system(command))
		die("gnuplot fails");
	body = read_file(svg);
	from = body ? strstr(body, "</desc>") : NULL;
	if (!from)
		die("gnuplot wrote no picture");
	unlink(script);
	unlink(svg);
	nr++;
	put("<figure>\n<figcaption>");
	text(c->title);
	put("</figcaption>\n<svg viewBox=\"0 0 480 380\" role=\"img\" aria-labelledby=\"pt%d pd%d\" "
	    "xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\">\n"
	    "<title id=\"pt%d\">", nr, nr, nr);
	text(c->title);
	put("</title>\n<desc id=\"pd%d\">", nr);
	text(c->axis);
	put(". The figures are in the table below.</desc>");
	put_svg_body(from + strlen("</desc>"), nr);
	put("\n");
	free(body);
	chart_table(c);
	put("</figure>\n");
}

/* ---- which charts an experiment has --------------------------------------------- */

/* Were the modes of its switch measured one by one? */
static bool has_modes(const json_t *modes, const char *experiment)
{
	json_t *r;
	size_t i;

	json_array_foreach(modes, i, r)
		if (!strcmp(str(r, "experiment"), experiment))
			return true;
	return false;
}

/*
 * One metric by case for folios of one size; ours once, or once for each mode. Divided
 * by stock's if relative.
 */
static void by_case(struct chart *c, const json_t *rows, const json_t *modes,
		    const char *experiment, int kb, const char *metric, bool relative, double unit)
{
	bool with = has_modes(modes, experiment);
	json_t *r;
	size_t i;

	json_array_foreach(rows, i, r) {
		if (strcmp(str(r, "experiment"), experiment) || folio(r) != kb || !counted(r) ||
		    strcmp(str(r, "metric"), metric))
			continue;
		chart_set(c, str(r, "case"), "stock", relative ? 1 : num(r, "stock") * unit);
		if (!with)
			chart_set(c, str(r, "case"), "Wholefolio",
				  relative ? num(r, "ratio") : num(r, "wholefolio") * unit);
	}
	json_array_foreach(modes, i, r) {
		if (strcmp(str(r, "experiment"), experiment) || folio(r) != kb || !counted(r) ||
		    strcmp(str(r, "metric"), metric))
			continue;
		chart_set(c, str(r, "case"), str(r, "mode"),
			  relative ? num(r, "ratio") : num(r, "wholefolio") * unit);
	}
}

static void by_folio(struct chart *c, const json_t *rows, const char *experiment,
		     const char *name, const char *metric, double unit)
{
	char t[32];
	json_t *r;
	size_t i;

	json_array_foreach(rows, i, r) {
		if (strcmp(str(r, "experiment"), experiment) || strcmp(str(r, "case"), name) ||
		    strcmp(str(r, "metric"), metric))
			continue;
		folio_text(t, sizeof(t), folio(r));
		chart_set(c, t, "stock", num(r, "stock") * unit);
		chart_set(c, t, "Wholefolio", num(r, "wholefolio") * unit);
	}
}

/* How long single stores take: percentiles along the axis, a line per kernel and case. */
static void latency(const json_t *rows, const char *experiment, int kb, const char *unit)
{
	static const char *const metrics[] = { "p50", "p99", "p999", "max" };
	static const char *const names[] = { "p50", "p99", "p99.9", "max" };
	char title[160], axis[64], series[96], size[32];
	struct chart c;
	int cases = 0;
	json_t *r, *m;
	size_t i, k;

	snprintf(title, sizeof(title), "A single %s: half, 99 %%, 99.9 %% and all of them take at most this, folios of %s",
		 about(experiment)->program ? "request" : "store", folio_text(size, sizeof(size), kb));
	snprintf(axis, sizeof(axis), "%s (log)", unit);
	chart_begin(&c, LINES, title, axis);
	c.logscale = true;
	json_array_foreach(rows, i, r) {
		if (strcmp(str(r, "experiment"), experiment) || folio(r) != kb ||
		    !first_of_case(rows, i) || !metric_of(rows, r, "p50") || cases == 3)
			continue;
		if (!about(experiment)->program && strcmp(str(r, "case"), "seq") &&
		    strcmp(str(r, "case"), "random") && strcmp(str(r, "case"), "store-2m"))
			continue;
		cases++;
		for (k = 0; k < 4; k++) {
			m = metric_of(rows, r, metrics[k]);
			snprintf(series, sizeof(series), "stock %s", str(r, "case"));
			chart_set(&c, names[k], series, num(m, "stock"));
			snprintf(series, sizeof(series), "ours %s", str(r, "case"));
			chart_set(&c, names[k], series, num(m, "wholefolio"));
		}
	}
	chart_put(&c);
}

/* Pages copied in vain, by how much the case writes. */
static void waste(const json_t *rows, const json_t *modes, int kb)
{
	const json_t *from[] = { rows, modes };
	const json_t *m;
	char x[48], series[48];
	struct chart c;
	double written;
	json_t *r;
	size_t i;

	chart_begin(&c, DOTS, "Copied and never written, for each page written; by how much is written",
		    "copied in vain / written");
	for (int pass = 0; pass < 2; pass++) {
		json_array_foreach(from[pass], i, r) {
			if (strcmp(str(r, "experiment"), "cow") || folio(r) != kb ||
			    strcmp(str(r, "metric"), "waste_kb"))
				continue;
			if (!pass && has_modes(modes, "cow"))
				snprintf(series, sizeof(series), "stock");
			else
				snprintf(series, sizeof(series), "%s", pass ? str(r, "mode") : "Wholefolio");
			m = metric_of(rows, r, "copied_kb");
			written = num(m, "stock") - num(metric_of(rows, r, "waste_kb"), "stock");
			if (!(written > 0))
				continue;
			snprintf(x, sizeof(x), "%.20s, %.*f MiB", str(r, "case"),
				 written < 10240 ? 1 : 0, written / 1024);
			if (!pass) {
				chart_set(&c, x, "stock", num(r, "stock") / written);
				if (!has_modes(modes, "cow"))
					chart_set(&c, x, series, num(r, "wholefolio") / written);
			} else {
				chart_set(&c, x, series, num(r, "wholefolio") / written);
			}
		}
	}
	chart_put(&c);
}

static bool has(const json_t *rows, const char *experiment, int kb)
{
	json_t *r;
	size_t i;

	json_array_foreach(rows, i, r)
		if (!strcmp(str(r, "experiment"), experiment) && folio(r) == kb)
			return true;
	return false;
}

static void charts_of_writes(const json_t *rows, const json_t *modes, const char *experiment,
			     int kb, const char *cost, const char *unit)
{
	char title[160], axis[64], size[32];
	struct chart c;

	if (!has(rows, experiment, kb))
		return;
	folio_text(size, sizeof(size), kb);
	snprintf(title, sizeof(title), "What the writes cost, folios of %s; stock is 1", size);
	snprintf(axis, sizeof(axis), "%s / stock's (log)", unit);
	chart_begin(&c, DOTS, title, axis);
	c.logscale = true;
	c.relative = true;
	by_case(&c, rows, modes, experiment, kb, cost, true, 1);
	chart_put(&c);

	snprintf(title, sizeof(title), "Faults, folios of %s", size);
	chart_begin(&c, DOTS, title, "faults (log)");
	c.logscale = true;
	by_case(&c, rows, modes, experiment, kb, "faults", false, 1);
	chart_put(&c);

	latency(rows, experiment, kb, unit);
}

static void large_share(const json_t *rows, const json_t *modes, const char *experiment, int kb)
{
	char title[160], size[32];
	struct chart c;

	snprintf(title, sizeof(title),
		 "Memory in folios of 64 KiB and more afterwards, of what was written; folios of %s",
		 folio_text(size, sizeof(size), kb));
	chart_begin(&c, BARS, title, "per cent");
	by_case(&c, rows, modes, experiment, kb, "large_share", false, 100);
	chart_put(&c);
}

static void charts(const json_t *rows, const json_t *modes, const char *experiment, bool counts)
{
	const char *unit = counts ? "instructions" : "nanoseconds";
	const char *cost = counts ? "insns" : "ns";
	char metric[32], axis[64];
	struct chart c;

	if (!strcmp(experiment, "reuse")) {
		charts_of_writes(rows, modes, experiment, 2048, cost, unit);
		charts_of_writes(rows, modes, experiment, 64, cost, unit);
	} else if (!strcmp(experiment, "cow")) {
		charts_of_writes(rows, modes, experiment, 64, cost, unit);
		waste(rows, modes, 64);
		large_share(rows, modes, experiment, 64);
	} else if (!strcmp(experiment, "zero")) {
		charts_of_writes(rows, modes, experiment, 64, cost, unit);
		large_share(rows, modes, experiment, 64);
	} else if (!strcmp(experiment, "mincore")) {
		snprintf(metric, sizeof(metric), "%s_per_page", cost);
		snprintf(axis, sizeof(axis), "%s a page", unit);
		chart_begin(&c, BARS, "mincore(), folios of 64 KiB", axis);
		by_case(&c, rows, NULL, experiment, 64, metric, false, 1);
		chart_put(&c);
	} else if (!strcmp(experiment, "lazyfree")) {
		snprintf(metric, sizeof(metric), "%s_per_page", cost);
		snprintf(axis, sizeof(axis), "%s a page (log)", unit);
		chart_begin(&c, LINES, "MADV_FREE of all of the memory, by size of its folios", axis);
		c.logscale = true;
		by_folio(&c, rows, experiment, "full", metric, 1);
		chart_put(&c);
		snprintf(metric, sizeof(metric), "%s_per_call", cost);
		snprintf(axis, sizeof(axis), "%s a call (log)", unit);
		chart_begin(&c, LINES, "MADV_FREE of 8 KiB in each 2 MiB, by size of the folios", axis);
		c.logscale = true;
		by_folio(&c, rows, experiment, "partial", metric, 1);
		chart_put(&c);
		chart_begin(&c, BARS, "Memory still in folios of 64 KiB and more after that", "per cent");
		by_folio(&c, rows, experiment, "partial", "large_share", 100);
		chart_put(&c);
	}
}

/* ---- tables --------------------------------------------------------------------- */

static bool any(const json_t *rows, const char *experiment, const char *metric)
{
	json_t *r;
	size_t i;

	json_array_foreach(rows, i, r)
		if (!strcmp(str(r, "experiment"), experiment) && !strcmp(str(r, "metric"), metric))
			return true;
	return false;
}

static void verdict_cell(const json_t *row)
{
	if (!row)
		put("<td></td>");
	else if (loses(row))
		put("<td class=\"worse\">worse</td>");
	else
		put("<td>%s</td>", gain(row) > 1.01 ? "better" : "same");
}

static void costs(const json_t *rows, const char *experiment)
{
	bool faults = any(rows, experiment, "faults");
	const char *heads[] = { "case", "folios", "ratio", "", "stock", "Wholefolio",
				faults ? "faults" : NULL, "p99", "max", NULL };
	json_t *r, *cost;
	size_t i;

	table_begin("What each case costs; ratios are Wholefolio / stock", heads);
	json_array_foreach(rows, i, r) {
		if (strcmp(str(r, "experiment"), experiment) || !first_of_case(rows, i))
			continue;
		cost = main_row(rows, r);
		if (!cost)
			continue;
		put("<tr%s>", loses(cost) ? " class=\"lose\"" : "");
		case_cells(r);
		ratio_cell(cost);
		verdict_cell(cost);
		count_cells(cost);
		if (faults) {
			ratio_cell(metric_of(rows, r, "faults"));
			ratio_cell(metric_of(rows, r, "p99"));
			ratio_cell(metric_of(rows, r, "max"));
		}
		put("</tr>\n");
	}
	table_end();
}

static void memory(const json_t *rows, const char *experiment)
{
	const bool copies = any(rows, experiment, "copied_kb");
	const char *const heads[] = {
		"case", "folios", "large share: stock", "Wholefolio", "",
		copies ? "copied, KiB: stock" : NULL, "Wholefolio", "in vain, KiB: stock",
		"Wholefolio", "", NULL };
	json_t *r, *share, *copied, *waste;
	char t[32];
	size_t i;

	if (!any(rows, experiment, "large_share"))
		return;
	table_begin(copies ? "Memory: in folios of 64 KiB and more; copied, copied and never written" :
		    "Memory in folios of 64 KiB and more", heads);
	json_array_foreach(rows, i, r) {
		if (strcmp(str(r, "experiment"), experiment) || !first_of_case(rows, i))
			continue;
		share = metric_of(rows, r, "large_share");
		if (!share)
			continue;
		put("<tr>");
		case_cells(r);
		snprintf(t, sizeof(t), "%.0f %%", 100 * num(share, "stock"));
		cell(t);
		snprintf(t, sizeof(t), "%.0f %%", 100 * num(share, "wholefolio"));
		cell(t);
		verdict_cell(share);
		if (copies) {
			copied = metric_of(rows, r, "copied_kb");
			waste = metric_of(rows, r, "waste_kb");
			count_cells(copied);
			count_cells(waste);
			verdict_cell(copied && loses(copied) ? copied : waste);
		}
		put("</tr>\n");
	}
	table_end();
}

/* An experiment that is none of the paths': each of its figures. */
static void all_rows(const json_t *rows, const char *experiment)
{
	static const char *const heads[] = { "case", "folios", "figure", "ratio", "", "stock",
					     "Wholefolio", NULL };
	json_t *r;
	size_t i;

	table_begin("Every figure; ratios are Wholefolio / stock", heads);
	json_array_foreach(rows, i, r) {
		if (strcmp(str(r, "experiment"), experiment))
			continue;
		put("<tr%s>", loses(r) ? " class=\"lose\"" : "");
		case_cells(r);
		put("<td>");
		text(str(r, "metric"));
		put("</td>");
		ratio_cell(r);
		verdict_cell(r);
		count_cells(r);
		put("</tr>\n");
	}
	table_end();
}

/* ---- the answer ------------------------------------------------------------------- */

struct sum {
	int better, same, worse;
	double logs, best, worst;
	const json_t *at;
};

static void sum_up(struct sum *s, const json_t *rows, const char *experiment)
{
	json_t *r, *cost;
	double ratio;
	size_t i;

	memset(s, 0, sizeof(*s));
	json_array_foreach(rows, i, r) {
		if ((experiment && strcmp(str(r, "experiment"), experiment)) ||
		    !first_of_case(rows, i) || !counted(r))
			continue;
		cost = main_row(rows, r);
		if (!cost)
			continue;
		ratio = 1 / gain(cost);
		if (loses(cost))
			s->worse++;
		else if (gain(cost) > 1.01)
			s->better++;
		else
			s->same++;
		s->logs += log(ratio);
		if (!s->best || ratio < s->best)
			s->best = ratio;
		if (ratio > s->worst) {
			s->worst = ratio;
			s->at = cost;
		}
	}
}

static int sum_cases(const struct sum *s)
{
	return s->better + s->same + s->worse;
}

static double sum_mean(const struct sum *s)
{
	return exp(s->logs / sum_cases(s));
}

/* One figure of a program, by name. */
static void extreme(const char *lead, const json_t *row)
{
	char size[32];

	put("%s", lead);
	text(str(row, "metric"));
	put(" of ");
	text(str(row, "case"));
	put(", %s, %s times stock&#8217;s", folio_text(size, sizeof(size), folio(row)),
	    ratio_text(num(row, "ratio")));
}

/* Which figures of a program moved most, either way, and further than its runs differ. */
static void extremes(const json_t *rows)
{
	json_t *r, *best = NULL, *worst = NULL;
	double by;
	size_t i;

	json_array_foreach(rows, i, r) {
		by = fabs(log(gain(r)));
		if (!isfinite(by) || by <= log1p(num(r, "spread")))
			continue;
		if (loses(r) && (!worst || gain(r) < gain(worst)))
			worst = r;
		if (gain(r) > 1.01 && (!best || gain(r) > gain(best)))
			best = r;
	}
	if (best)
		extreme("Of all its figures the best is ", best);
	if (worst)
		extreme(best ? "; the worst is " : "Of all its figures the worst is ", worst);
	put("%s", best || worst ? ". " : "No figure moves further than the runs differ. ");
}

static void answer(const json_t *result)
{
	static const struct { const char *experiment, *says; } paths[] = {
		{ "reuse", "rewriting memory after fork and the child's exit costs %.2f of stock's" },
		{ "cow", "writing while the child lives %.2f" },
		{ "zero", "writing what was read first %.2f" },
		{ "mincore", "mincore() %.2f" },
		{ "lazyfree", "MADV_FREE %.2f" },
	};
	const json_t *rows = json_object_get(result, "rows");
	bool counts = !strcmp(str(result, "accel"), "icount");
	const struct about *a;
	char size[32];
	struct sum all, s;
	size_t i;
	int n = 0;

	sum_up(&all, rows, NULL);
	if (!sum_cases(&all))
		return;
	put("<p class=\"answer\">");
	a = about(str(json_array_get(rows, 0), "experiment"));
	if (a->program) {
		text(a->title);
		put(": of %d cases, each on folios of one size, ", sum_cases(&all));
	} else {
		put("Of %d cases, each a pattern on folios of one size, ", sum_cases(&all));
	}
	text(*str(result, "series") ? str(result, "series") : "the patched kernel");
	put(" does better than stock Linux ");
	text(str(result, "base"));
	put(" in <strong>%d</strong>, the same within 1 %% in %d, and worse in <strong>%d</strong>%s. ",
	    all.better, all.same, all.worse, counts ? ", in instructions" : "");
	for (i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		sum_up(&s, rows, paths[i].experiment);
		if (!sum_cases(&s))
			continue;
		put("%s", n++ ? ", " : "By geometric mean over its cases, ");
		put(paths[i].says, sum_mean(&s));
	}
	put("%s", n ? ". " : "");
	if (a->program) {
		extremes(rows);
	} else if (all.worse) {
		put("The worst case is ");
		text(str(all.at, "case"));
		put(" of &#8220;");
		text(str(all.at, "experiment"));
		put("&#8221; on folios of %s: %s times stock. ",
		    folio_text(size, sizeof(size), folio(all.at)), ratio_text(all.worst));
	}
	sum_up(&s, rows, "guard");
	if (sum_cases(&s))
		put("Of the %d paths that must not get slower the worst is at %s.", sum_cases(&s),
		    ratio_text(s.worst));
	put("</p>\n");
}

/* ---- the page --------------------------------------------------------------------- */

static const char style[] =
	":root{color-scheme:light}\n"
	"body{font:1rem/1.5 system-ui,sans-serif;color:#111;background:#fff;margin:0 auto;"
	"padding:1rem;max-width:72rem}\n"
	"h1{font-size:1.6rem;line-height:1.2}h2{margin-top:2.5rem;border-top:2px solid #111;"
	"padding-top:.6rem;font-size:1.3rem}\n"
	".answer{font-size:1.15rem;border-left:.4rem solid #111;padding-left:.8rem;max-width:46rem}\n"
	"p,li{max-width:46rem}\n"
	"a{color:#0b4f9e}a:focus,summary:focus,.wide:focus{outline:3px solid #0b4f9e}\n"
	".wide{overflow-x:auto;margin:1rem 0}\n"
	"table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}\n"
	"caption{text-align:left;font-weight:600;padding:.2rem 0}\n"
	"th,td{padding:.2rem .6rem;border-bottom:1px solid #bbb;text-align:left;white-space:nowrap}\n"
	"thead th{border-bottom:2px solid #111;vertical-align:bottom}\n"
	"tbody th{font-weight:400}.n{text-align:right}\n"
	".worse{font-weight:700}.lose{background:#eee}\n"
	".plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,28rem),1fr));gap:1rem}\n"
	"figure{margin:0;border:1px solid #bbb;padding:.6rem;min-width:0}\n"
	"figcaption{font-weight:600}svg{width:100%;height:auto;display:block}\n"
	"summary{cursor:pointer;padding:.4rem 0}dt{font-weight:600}dd{margin:0 0 .4rem 1rem;overflow-wrap:anywhere}\n"
	"@media print{body{max-width:none}figure,tr{break-inside:avoid}}\n";

static void head(const json_t *first)
{
	char title[256];

	snprintf(title, sizeof(title), "Linux %.60s, stock and %.80s", str(first, "base"),
		 *str(first, "series") ? str(first, "series") : "patched");
	put("<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
	    "<meta charset=\"utf-8\"/>\n"
	    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>");
	text(title);
	put("</title>\n<style>\n");
	fputs(style, page);
	put("</style>\n</head>\n<body>\n<main>\n<h1>");
	text(title);
	put("</h1>\n");
}

static void sections(const json_t *result)
{
	const json_t *rows = json_object_get(result, "rows"), *modes = json_object_get(result, "modes");
	bool counts = !strcmp(str(result, "accel"), "icount");
	json_t *r;
	size_t i;
	int kb;

	json_array_foreach(rows, i, r) {
		const char *e = str(r, "experiment");

		if (!first_of_experiment(rows, i))
			continue;
		put("<section>\n<h2 id=\"");
		text(e);
		put("\">");
		text(about(e)->title);
		put("</h2>\n<p>");
		text(about(e)->what);
		put("</p>\n");
		if (!about(e)->program) {
			costs(rows, e);
			memory(rows, e);
			put("<div class=\"plots\">\n");
			charts(rows, modes, e, counts);
			put("</div>\n");
		} else {
			all_rows(rows, e);
			put("<div class=\"plots\">\n");
			for (kb = 4; kb <= 2048; kb *= 2)
				latency(rows, e, kb, counts ? "instructions" : "nanoseconds");
			put("</div>\n");
		}
		put("</section>\n");
	}
}

static void contents(json_t *const *results, int n)
{
	json_t *rows, *r;
	size_t i;

	put("<nav aria-label=\"Contents\"><ul>\n");
	for (int k = 0; k < n; k++) {
		rows = json_object_get(results[k], "rows");
		json_array_foreach(rows, i, r) {
			if (!first_of_experiment(rows, i))
				continue;
			put("<li><a href=\"#");
			text(str(r, "experiment"));
			put("\">");
			text(about(str(r, "experiment"))->title);
			put("</a></li>\n");
		}
	}
	put("<li><a href=\"#how\">How it was measured</a></li>\n</ul></nav>\n");
}

static void notes(const json_t *result, const char *key, const char *title)
{
	const json_t *list = json_object_get(result, key);
	json_t *n;
	size_t i;

	if (!json_array_size(list))
		return;
	put("<h3>%s</h3>\n<ul>\n", title);
	json_array_foreach(list, i, n) {
		put("<li>");
		text(str(n, "kernel"));
		put(": ");
		text(str(n, "experiment"));
		put(" ");
		text(str(n, "case"));
		put(": ");
		text(str(n, "reason"));
		put("</li>\n");
	}
	put("</ul>\n");
}

static void how(json_t *const *results, int n)
{
	const char *key;
	json_t *v;

	put("<section>\n<h2 id=\"how\">How it was measured</h2>\n"
	    "<p>Stock and patched kernel have the same source, compiler and configuration and run "
	    "the same programs with the same inputs: patterns and keys come from a generator with a "
	    "fixed seed. Each figure is the least of its repeats. Where the accelerator is "
	    "<em>icount</em>, QEMU's virtual clock counts the guest's instructions: they repeat from "
	    "boot to boot and from machine to machine, but they are not time. Misses of cache and TLB "
	    "cost nothing there, and a <code>rep movsb</code> counts an instruction a byte. "
	    "&#9650; and &#8220;worse&#8221; mark what is worse than stock by more than 1 %%.</p>\n");
	for (int k = 0; k < n; k++) {
		put("<dl>\n");
		json_object_foreach(results[k], key, v) {
			char t[64];

			if (json_is_array(v) || json_is_object(v))
				continue;
			put("<dt>");
			text(key);
			put("</dt><dd>");
			snprintf(t, sizeof(t), "%.10g", json_number_value(v));
			text(json_is_string(v) ? json_string_value(v) : t);
			put("</dd>\n");
		}
		put("</dl>\n");
		notes(results[k], "skipped", "Skipped");
		notes(results[k], "failed", "Failed");
	}
	put("</section>\n</main>\n</body>\n</html>\n");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "out", required_argument, NULL, 'o' },
		{ NULL, 0, NULL, 0 },
	};
	json_t **results;
	char *to, *tmp;
	int c, n;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c != 'o')
			return 2;
		dir = optarg;
	}
	n = argc - optind;
	results = calloc(n > 0 ? n : 1, sizeof(*results));
	if (!dir || n < 1 || !results)
		return 2;
	for (int i = 0; i < n; i++)
		results[i] = rows_load(argv[optind + i]);
	if (asprintf(&to, "%s/index.html", dir) < 0 || asprintf(&tmp, "%s.tmp", to) < 0)
		return 1;
	page = fopen(tmp, "w");
	if (!page)
		die("cannot write the page");
	head(results[0]);
	for (int i = 0; i < n; i++)
		answer(results[i]);
	contents(results, n);
	for (int i = 0; i < n; i++)
		sections(results[i]);
	how(results, n);
	if (fclose(page) || rename(tmp, to)) {
		unlink(tmp);
		die("cannot write the page");
	}
	return 0;
}
