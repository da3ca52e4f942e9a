// SPDX-License-Identifier: GPL-2.0
/*
 * Path 4: any part of any folio named, against lazyfree_plan(). The pieces
 * cover the folio without gap or overlap, are buddies, keep named and unnamed
 * pages apart and are as large as that allows.
 */
#include "lazyfree.h"

static bool cut_at(unsigned int first, unsigned int order, unsigned int at)
{
	return first < at && at < first + (1u << order);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	const unsigned int order = 2 + take(&in, 8);
	const unsigned int first = take(&in, 1u << order);
	const unsigned int last = first + 1 + take(&in, (1u << order) - first);
	/* On the heap and no larger than promised, for the sanitiser to watch. */
	struct lazyfree_piece *p = malloc(LAZYFREE_MAX_PIECES * sizeof(*p));
	const unsigned int nr = lazyfree_plan(order, first, last, p);
	unsigned int pos = 0;

	MUST(nr >= 1 && nr <= LAZYFREE_MAX_PIECES);
	MUST(nr > 1 || (!first && last == 1u << order));
	for (unsigned int i = 0; i < nr; i++) {
		const unsigned int o = p[i].order, up = o ? o + 1 : 2;

		MUST(p[i].first == pos && !(pos & ((1u << o) - 1)));
		MUST(o <= order && o != 1);
		MUST(!cut_at(pos, o, first) && !cut_at(pos, o, last));
		/* The next larger buddy would have been too large. */
		if (up <= order) {
			const unsigned int buddy = ALIGN_DOWN(pos, 1u << up);

			MUST(cut_at(buddy, up, first) || cut_at(buddy, up, last));
		}
		pos += 1u << o;
	}
	MUST(pos == 1u << order);
	if (first)
		MUST(lazyfree_cut_order(first) != 1 && !(first & ((1u << lazyfree_cut_order(first)) - 1)));
	free(p);
	return 0;
}
