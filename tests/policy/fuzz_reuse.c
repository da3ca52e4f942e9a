// SPDX-License-Identifier: GPL-2.0
/*
 * Path 1: sequences of stores to a page table of folios, VMAs ending anywhere,
 * against wp_reuse.h. What a fault makes writable is in its folio, its VMA and
 * its page table, has the faulting PTE, and is bounded by what it saw.
 */
#include "wp_reuse.h"

enum { NR = 512 };

static bool writable[NR];

/* As wp_reuse_run_length() looks: at powers of two, so maybe across a gap. */
static unsigned int run(int pos, int dir, unsigned int max)
{
	unsigned int len = 0;

	for (unsigned int n = 1; n <= min(max, WP_REUSE_MOST); n *= 2) {
		if (!writable[pos + dir * (int)n])
			break;
		len = n;
	}
	return len;
}

static void check(const struct wp_reuse_view *v, struct wp_reuse_window w)
{
	MUST(w.nr >= 1 && w.nr <= NR);
	MUST(w.first >= v->lo && w.first + w.nr <= v->hi);
	MUST(w.first <= v->pos && v->pos < w.first + w.nr);
}

static void check_adaptive(const struct wp_reuse_view *v, struct wp_reuse_window w)
{
	const unsigned int beside = max(v->below, v->above);

	check(v, w);
	MUST(w.nr <= WP_REUSE_MOST);
	/* A block, or twice what was writable beside the fault. */
	MUST(w.nr <= max(v->again ? WP_REUSE_AGAIN : 1u, 2 * beside));
}

/* Any view, also such as no page table shows. */
static void any_view(struct input *in)
{
	struct wp_reuse_view v;

	v.lo = take(in, NR);
	v.hi = v.lo + 1 + take(in, NR - v.lo);
	v.pos = v.lo + take(in, v.hi - v.lo);
	v.below = take(in, NR + 1);
	v.above = take(in, NR + 1);
	v.again = take(in, 2);
	check_adaptive(&v, wp_reuse_adaptive(&v));
	check(&v, wp_reuse_clamp(&v, v.lo, v.hi));
	check(&v, wp_reuse_block(&v, WP_REUSE_BLOCK));
	MUST(wp_reuse_block(&v, WP_REUSE_BLOCK).nr <= WP_REUSE_BLOCK);
}

/* A program that writes: what it never asked for is never touched. */
static void program(struct input *in)
{
	const unsigned int order = 2 + take(in, 8);	/* 4 to 512 pages */
	const unsigned int start = take(in, NR), end = start + 1 + take(in, NR - start);
	unsigned int faults = 0, made = 0, allowed = 0;

	memset(writable, 0, sizeof(writable));
	while (in->size) {
		const unsigned int pos = start + take(in, end - start);
		const unsigned int folio = ALIGN_DOWN(pos, 1u << order);
		struct wp_reuse_view v = {
			.lo = max(start, folio),
			.hi = min(end, folio + (1u << order)),
			.pos = pos,
		};
		struct wp_reuse_window w;

		if (writable[pos])
			continue;
		v.again = writable[v.lo];
		v.below = run(pos, -1, pos - start);
		v.above = v.below ? 0 : run(pos, 1, end - 1 - pos);
		w = wp_reuse_adaptive(&v);
		check_adaptive(&v, w);
		faults++;
		allowed += max(WP_REUSE_AGAIN, 2 * max(v.below, v.above)) + 1;
		for (unsigned int i = w.first; i < w.first + w.nr; i++) {
			made += !writable[i];
			writable[i] = true;
		}
		made += !writable[v.lo];
		writable[v.lo] = true;
	}
	/* A lone store pays for two PTEs: its own and the folio's mark. */
	MUST(faults != 1 || made <= 2);
	MUST(made <= allowed);
	for (unsigned int i = 0; i < NR; i++)
		MUST(!writable[i] || (i >= start && i < end));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };

	any_view(&in);
	program(&in);
	return 0;
}
