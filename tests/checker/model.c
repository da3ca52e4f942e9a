// SPDX-License-Identifier: GPL-2.0
/*
 * What every byte must be.  A page's content is a buffer in the pool, shared
 * by reference count between all pages that hold the same bytes, as fork makes
 * them; a write takes a buffer of its own.  Copy-on-write with nothing clever.
 */
#include "chk.h"

struct shm *S;
unsigned char *pool;

static uint32_t c_new(void)
{
	uint32_t c;

	if (!S->ncfree) {
		fprintf(stderr, "# model: out of content buffers\n");
		exit(2);
	}
	c = S->cfree[--S->ncfree];
	S->ref[c] = 1;
	return c;
}

static uint32_t c_get(uint32_t c)
{
	if (c != ZEROC && c != NOALT)
		S->ref[c]++;
	return c;
}

static void c_put(uint32_t c)
{
	if (c != ZEROC && c != NOALT && !--S->ref[c])
		S->cfree[S->ncfree++] = c;
}

void model_init(void)
{
	unsigned int i, p;

	memset(S->pr, 0, sizeof(S->pr));
	memset(S->pin, 0, sizeof(S->pin));
	memset(S->sp, 0, sizeof(S->sp));
	for (p = 0; p < NPROC; p++)
		for (i = 0; i < NPAGES; i++)
			S->pr[p].pg[i].alt = NOALT;
	S->ncfree = 0;
	for (i = NCONTENT - 1; i > 0; i--)
		S->cfree[S->ncfree++] = i;
	S->nspfree = 0;
	for (i = NSHARED - 1; i > 0; i--)
		S->spfree[S->nspfree++] = i;
	memset(c_ptr(ZEROC), 0, PG);
}

static void m_lose_content(struct mpage *m)
{
	c_put(m->c);
	c_put(m->alt);
	m->c = ZEROC;
	m->alt = NOALT;
	m->pin = 0;
	m->fl &= (uint16_t)~(F_WPEXP | F_UWRITTEN | F_SDW | F_SINCE | F_UNSHARED |
			     F_LAZY);
}

void m_clear(struct mpage *m)
{
	m_lose_content(m);
	if (m->sh && !--S->sp[m->sh].ref) {
		c_put(S->sp[m->sh].c);
		S->spfree[S->nspfree++] = m->sh;
	}
	m->sh = 0;
	m->fl = 0;
}

void m_map(int p, unsigned int a, unsigned int n, int prot, bool shared)
{
	unsigned int i;

	for (i = a; i < a + n; i++) {
		struct mpage *m = &S->pr[p].pg[i];

		m_clear(m);
		m->fl = (uint16_t)(F_MAPPED | (prot & 1 ? F_R : 0) |
				   (prot & 2 ? F_W : 0));
		if (shared && S->nspfree) {
			m->sh = S->spfree[--S->nspfree];
			S->sp[m->sh].ref = 1;
			S->sp[m->sh].c = ZEROC;
			m->fl |= F_SHARED;
		}
	}
}

/* MADV_DONTNEED: private memory is zero again, shared memory keeps its bytes. */
void m_zap(int p, unsigned int a, unsigned int n)
{
	unsigned int i;

	for (i = a; i < a + n; i++)
		m_lose_content(&S->pr[p].pg[i]);
}

void bytes_make(unsigned char *dst, uint32_t off, uint32_t len, uint64_t seed,
		int style)
{
	struct rng r = { seed };
	uint32_t i;

	if (style == 5) {
		memset(dst + off, 0, len);
		return;
	}
	if (style == 4)		/* one of four contents: work for KSM */
		r.s = seed & 3;
	if (!(off & 7) && !(len & 7)) {
		uint64_t x = rnd(&r) | 1, y = rnd(&r) & ~1ULL;

		for (i = 0; i < len; i += 8, x += y)
			memcpy(dst + off + i, &x, 8);
		return;
	}
	for (i = 0; i < len; i++)
		dst[off + i] = (unsigned char)(rnd(&r) | 1);
}

static uint32_t c_patched(uint32_t old, uint32_t off, uint32_t len,
			  uint64_t seed, int style)
{
	uint32_t c = c_new();

	if (len != PG)
		memcpy(c_ptr(c), c_ptr(old), PG);
	bytes_make(c_ptr(c), off, len, seed, style);
	return c;
}

static void pin_note(struct mpage *m)
{
	struct mpin *k;
	unsigned int i = m->pidx;

	if (!m->pin)
		return;
	k = &S->pin[m->pin - 1];
	if (k->ring) {
		c_put(k->cur[i]);
		k->cur[i] = c_get(m->c);
		return;
	}
	if (k->nver[i] == PINVERS || m->alt != NOALT) {
		k->overflow = 1;
		return;
	}
	k->ver[i][k->nver[i]++] = c_get(m->c);
}

void m_write(int p, unsigned int page, uint32_t off, uint32_t len, uint64_t seed,
	     int style)
{
	struct mpage *m = &S->pr[p].pg[page];
	uint32_t c;

	if (m->sh) {
		c = c_patched(S->sp[m->sh].c, off, len, seed, style);
		c_put(S->sp[m->sh].c);
		S->sp[m->sh].c = c;
		m->fl |= F_SDW;
		return;
	}
	c = c_patched(m->c, off, len, seed, style);
	c_put(m->c);
	m->c = c;
	if (m->alt != NOALT) {
		uint32_t alt = NOALT;

		if (len != PG)
			alt = c_patched(m->alt, off, len, seed, style);
		c_put(m->alt);
		m->alt = alt;
	}
	m->fl |= F_SDW | F_SINCE;
	m->fl &= (uint16_t)~(F_UNSHARED | F_LAZY);
	if (m->fl & F_UFFD)
		m->fl |= F_UWRITTEN;
	pin_note(m);
}

/* One of the two contents was seen, and it stays (is_alt: the other one). */
void m_resolve(struct mpage *m, bool is_alt)
{
	if (is_alt) {
		c_put(m->c);
		m->c = m->alt;
		if (m->pin && S->pin[m->pin - 1].ring)
			pin_note(m);
	} else {
		c_put(m->alt);
	}
	m->alt = NOALT;
}

void m_lazy(int p, unsigned int a, unsigned int n)
{
	unsigned int i;

	for (i = a; i < a + n; i++) {
		struct mpage *m = &S->pr[p].pg[i];

		if (m->alt == NOALT && m->c != ZEROC)
			m->alt = ZEROC;
		m->fl &= (uint16_t)~(F_SDW | F_WPEXP | F_UWRITTEN);
		m->fl |= F_LAZY;
	}
}

void m_fork(int p, int q)
{
	unsigned int i;

	for (i = 0; i < NPAGES; i++) {
		struct mpage *f = &S->pr[p].pg[i];
		struct mpage *m = &S->pr[q].pg[i];

		f->fl &= (uint16_t)~F_SINCE;
		m_clear(m);
		if (!(f->fl & F_MAPPED) || (f->fl & F_DONTFORK))
			continue;
		m->fl = f->fl & (uint16_t)~(F_LOCKED | F_UFFD | F_WPEXP |
					    F_UWRITTEN | F_SDW);
		if (f->sh) {
			m->sh = f->sh;
			S->sp[m->sh].ref++;
		} else if (!(f->fl & F_WIPE)) {
			m->c = c_get(f->c);
			m->alt = c_get(f->alt);
		}
	}
}

void m_exit(int p)
{
	unsigned int i;

	for (i = 0; i < NPAGES; i++)
		m_clear(&S->pr[p].pg[i]);
	for (i = 0; i < NPIN; i++)
		if (S->pin[i].used && S->pin[i].proc == p)
			m_pin_drop((int)i);
	S->pr[p].alive = false;
	S->pr[p].uffd_mode = 0;
}

void m_move(int p, unsigned int a, unsigned int n, unsigned int b, bool keep)
{
	struct mpage *pg = S->pr[p].pg;
	unsigned int i;

	for (i = 0; i < n; i++) {
		struct mpage *f = &pg[a + i], *m = &pg[b + i];
		uint16_t vma = f->fl;

		m_clear(m);
		*m = *f;
		m->fl &= (uint16_t)~(F_UFFD | F_WPEXP | F_UWRITTEN);
		memset(f, 0, sizeof(*f));
		f->alt = NOALT;
		if (keep)
			f->fl = vma & (F_VMA & ~F_LOCKED);
	}
}

/* Longest run from a, at most n, that is mapped and alike in the flags of mask. */
unsigned int m_clip(int p, unsigned int a, unsigned int n, unsigned int mask)
{
	const struct mpage *pg = S->pr[p].pg;
	unsigned int i;

	if (a + n > NPAGES)
		n = NPAGES - a;
	for (i = 0; i < n; i++)
		if (!(pg[a + i].fl & F_MAPPED) ||
		    (pg[a + i].fl & mask) != (pg[a].fl & mask))
			break;
	return i;
}

void m_pin_set(int k, int p, unsigned int a, unsigned int n, bool ring)
{
	struct mpin *pin = &S->pin[k];
	unsigned int i;

	memset(pin, 0, sizeof(*pin));
	pin->used = 1;
	pin->ring = ring;
	pin->proc = (uint8_t)p;
	pin->n = (uint8_t)n;
	for (i = 0; i < n; i++) {
		struct mpage *m = &S->pr[p].pg[a + i];

		m->pin = (uint8_t)(k + 1);
		m->pidx = (uint8_t)i;
		if (ring) {
			pin->cur[i] = c_get(m->c);
			continue;
		}
		pin->ver[i][pin->nver[i]++] = c_get(m->c);
		if (m->alt != NOALT)
			pin->ver[i][pin->nver[i]++] = c_get(m->alt);
	}
}

void m_pin_drop(int k)
{
	struct mpin *pin = &S->pin[k];
	struct mpage *pg = S->pr[pin->proc].pg;
	unsigned int i, j;

	for (i = 0; i < NPAGES; i++)
		if (pg[i].pin == k + 1)
			pg[i].pin = 0;
	for (i = 0; i < pin->n; i++) {
		if (pin->ring) {
			c_put(pin->cur[i]);
			continue;
		}
		for (j = 0; j < pin->nver[i]; j++)
			c_put(pin->ver[i][j]);
	}
	pin->used = 0;
}

/* Hash of all bytes that are certain, for the comparison of two kernels. */
uint64_t m_hash(int p)
{
	uint64_t h = 0xcbf29ce484222325ULL;
	unsigned int i, j;

	for (i = 0; i < NPAGES; i++) {
		const struct mpage *m = &S->pr[p].pg[i];
		const uint64_t *w = (const uint64_t *)(const void *)c_ptr(pg_content(m));

		if (!(m->fl & F_MAPPED) || m->alt != NOALT || pg_content(m) == ZEROC)
			continue;
		for (j = 0; j < PG / 8; j += 8)
			h = (h ^ w[j] ^ i) * 0x100000001b3ULL;
	}
	return h;
}

/* Pages that were written since their process was in a fork. */
unsigned int m_written(void)
{
	unsigned int p, i, n = 0;

	for (p = 0; p < NPROC; p++)
		for (i = 0; i < NPAGES; i++)
			n += !!(S->pr[p].pg[i].fl & F_SINCE);
	return n;
}

/* Does somebody else have the page, too? Asked of the model, which may say yes too often. */
bool m_shared(const struct mpage *m)
{
	return m->c != ZEROC && S->ref[m->c] > 1;
}
