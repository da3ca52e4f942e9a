/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The rows of compare.json and of the workloads' results: one figure each, of stock and
 * of ours. What both the table on the terminal and the page ask of them.
 */
#ifndef WF_LAB_ROWS_H
#define WF_LAB_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

/* The string, number or folio size of a row; "", NAN or 0 where it has none. */
const char *str(const json_t *row, const char *key);
double num(const json_t *row, const char *key);
int folio(const json_t *row);

bool starts(const char *s, const char *with);

/**
 * rows_load - read a file of results
 * @path: its name
 *
 * Return: the file's object, which has an array "rows". Exits if it has none.
 */
json_t *rows_load(const char *path);

/* Are these figures of one experiment, case and folio size? */
bool same_case(const json_t *a, const json_t *b);

/* Is more of this metric better: shares of memory in large folios, throughput? */
bool more_is_better(const char *metric);

/**
 * gain - how far ours is better than stock
 * @row: a row
 *
 * Return: stock's cost in units of ours, so that more than 1 is better whichever
 * way the metric goes; 1 where both are zero, 0 or infinite where one is.
 */
double gain(const json_t *row);

/* Is ours worse by more than 1 %? */
bool loses(const json_t *row);

/* The row of the same case with another metric, or NULL. */
json_t *metric_of(const json_t *rows, const json_t *like, const char *metric);

/* The figure that says what a case costs, or NULL. */
json_t *main_row(const json_t *rows, const json_t *like);

/* Is row number @at the first one of its case, of its experiment? */
bool first_of_case(const json_t *rows, size_t at);
bool first_of_experiment(const json_t *rows, size_t at);

/* "97.2 M", "64 KiB"; both return @text. */
char *count_text(char *text, size_t len, double v);
char *folio_text(char *text, size_t len, int kb);

#endif
