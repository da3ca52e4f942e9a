// SPDX-License-Identifier: GPL-2.0
/*
 * Path 3: any page table, against the helpers that look at many entries at a
 * time. They never call present what is not, and count what one by one gives.
 */
#include "mincore_batch.h"

/* Not used here. */
bool mincore_batch;

static const uint64_t kinds[] = {
	0,
	PTE_MARKER,
	PTE_MARKER | 1ULL << 58,
	PTE_PRESENT,
	PTE_PROTNONE,
	PTE_PRESENT | PTE_PROTNONE,
	1ULL << 57,		/* in swap */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	const unsigned int nr = 1 + take(&in, 64);
	/* Exactly as long as it may be read. */
	pte_t *table = malloc(nr * sizeof(*table));

	for (unsigned int i = 0; i < nr; i++) {
		uint64_t pte = kinds[take(&in, sizeof(kinds) / sizeof(kinds[0]))];

		/* Frame number or place in swap: anything. */
		if (pte && !(pte & PTE_MARKER))
			pte |= (uint64_t)take(&in, 1 << 16) << 12;
		table[i] = __pte(pte);
	}
	for (unsigned int i = 0; i + MINCORE_PTE_GROUP <= nr; i++) {
		unsigned int present = 0, same = 1;

		for (unsigned int j = 0; j < MINCORE_PTE_GROUP; j++) {
			present += pte_present(table[i + j]);
			same &= (pte_val(table[i + j]) & PTE_PRESENT) != 0;
		}
		MUST(!mincore_group_present(table + i) || present == MINCORE_PTE_GROUP);
		/* What every program has is recognised. */
		MUST(mincore_group_present(table + i) || !same);
	}
	for (unsigned int i = 0; i < nr; i++) {
		unsigned int n = 1;

		if (!mincore_pte_unmapped(table[i]))
			continue;
		while (i + n < nr && mincore_pte_unmapped(table[i + n]))
			n++;
		MUST(mincore_unmapped_run(table + i, nr - i) == n);
	}
	free(table);
	return 0;
}
