/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the policy headers of kernel/mm use of the kernel, for user space. The
 * Makefile puts it before every file and makes the headers that they include
 * empty ones.
 */
#ifndef POLICY_KERNEL_H
#define POLICY_KERNEL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;

struct vm_area_struct;
typedef struct { uint64_t pmd; } pmd_t;

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define min(a, b) ({ typeof(a) _a = (a); typeof(b) _b = (b); _a < _b ? _a : _b; })
#define max(a, b) ({ typeof(a) _a = (a); typeof(b) _b = (b); _a > _b ? _a : _b; })
#define min_t(t, a, b) min((t)(a), (t)(b))
#define ALIGN_DOWN(x, a) ((x) & ~((typeof(x))(a) - 1))
#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
#define hweight64(x) ((unsigned int)__builtin_popcountll(x))
#define __ffs(x) ((unsigned int)__builtin_ctzl(x))
#define ilog2(x) (63 - __builtin_clzl(x))
#define MAX_PTRS_PER_PTE 512
#define PTRS_PER_PTE 512
#define IS_ENABLED(x) 1
#define unrolled_full

/* Page table entries as x86-64 has them, as far as mincore looks at them. */
typedef unsigned long pgoff_t;
typedef struct { uint64_t val; } swp_entry_t;
typedef struct { uint64_t pte; } pte_t;
#define PTE_PRESENT	(1ULL << 0)
#define PTE_PROTNONE	(1ULL << 8)
/* Of an entry that is not present: a marker, not a place in swap. */
#define PTE_MARKER	(1ULL << 62)

static inline uint64_t pte_val(pte_t pte) { return pte.pte; }
static inline pte_t __pte(uint64_t val) { return (pte_t){ val }; }
static inline pte_t ptep_get(const pte_t *ptep) { return *ptep; }
static inline bool pte_none(pte_t pte) { return !pte.pte; }
static inline bool pte_present(pte_t pte)
{
	return pte.pte & (PTE_PRESENT | PTE_PROTNONE);
}
static inline bool pte_is_marker(pte_t pte)
{
	return !pte_present(pte) && (pte.pte & PTE_MARKER);
}

/* An invariant that does not hold: say which, then stop for the fuzzer. */
#define MUST(cond) do {							\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: must hold: %s\n", __FILE__,	\
			__LINE__, #cond);				\
		abort();						\
	}								\
} while (0)

/* The fuzzer's bytes, taken one after the other; zeros when they are used up. */
struct input {
	const uint8_t *data;
	size_t size;
};

static inline unsigned int take(struct input *in, unsigned int below)
{
	unsigned int v = 0;

	for (int i = 0; i < 2 && in->size; i++, in->size--)
		v = v << 8 | *in->data++;
	return v % below;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
