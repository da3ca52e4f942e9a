// SPDX-License-Identifier: GPL-2.0
/* What the test programs share. See common.h. */
#include "common.h"

#include <dirent.h>
#include <limits.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/uio.h>

#define CGROUPS "/sys/fs/cgroup/"
#define CGROUP CGROUPS "wf-test/"

int time_factor(void)
{
	const char *s = getenv("WF_TIME_FACTOR");
	int factor = s ? atoi(s) : 1;

	return factor > 1 ? factor : 1;
}

bool quick(void)
{
	return getenv("WF_QUICK");
}

/* Longer than any case takes under emulation on a busy machine, shorter than patience. */
static unsigned int case_seconds(void)
{
	return 90 * time_factor();
}

/* Written by the process of a case, read by the one that runs the table. */
static struct {
	char reason[256];
	bool made_swap;
} *shared;

static pid_t main_pid;

int skip(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(shared->reason, sizeof(shared->reason), fmt, args);
	va_end(args);
	return KSFT_SKIP;
}

/* --- settings ----------------------------------------------------------- */

int file_write(const char *path, const char *val)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, val, strlen(val)) != (ssize_t)strlen(val))
		ret = errno ? -errno : -EIO;
	close(fd);
	return ret;
}

int file_read(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, len - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	buf[n < 0 ? 0 : n] = 0;
	return n;
}

char *selected_word(char *s)
{
	char *open = strchr(s, '['), *close = open ? strchr(open, ']') : NULL;

	if (close) {
		*close = 0;
		memmove(s, open + 1, close - open);
	} else {
		s[strcspn(s, "\n")] = 0;
	}
	return s;
}

#define MAX_SAVED 64
static struct saved {
	char path[160];
	char val[64];
} saved[MAX_SAVED];
static int nr_saved;

int setting(const char *path, const char *val)
{
	char buf[256];
	int i, n;

	for (i = 0; i < nr_saved; i++)
		if (!strcmp(saved[i].path, path))
			return file_write(path, val);
	n = file_read(path, buf, sizeof(buf));
	if (n < 0)
		return n;
	selected_word(buf);
	if (nr_saved < MAX_SAVED) {
		snprintf(saved[nr_saved].path, sizeof(saved[0].path), "%s", path);
		snprintf(saved[nr_saved].val, sizeof(saved[0].val), "%.60s", buf);
		nr_saved++;
	}
	return file_write(path, val);
}

void size_set(size_t folio, const char *val)
{
	char path[160];

	snprintf(path, sizeof(path), THP_DIR "hugepages-%lukB/enabled",
		 (unsigned long)KB(folio));
	setting(path, val);
}

void sizes_set(size_t folio, const char *val)
{
	for (size_t s = 16 << 10; s <= 64 << 10; s *= 2)
		if (s != folio)
			size_set(s, val);
}

void settings_restore(void)
{
	if (getpid() != main_pid)
		return;
	while (nr_saved) {
		nr_saved--;
		file_write(saved[nr_saved].path, saved[nr_saved].val);
	}
	rmdir(CGROUP);
	if (shared && shared->made_swap) {
		shared->made_swap = false;
		if (!swapoff("/dev/zram0"))
			file_write("/sys/block/zram0/reset", "1");
	}
}

static void on_signal(int sig)
{
	settings_restore();
	signal(sig, SIG_DFL);
	raise(sig);
}

static void knob_path(char *buf, size_t len, const char *knob)
{
	snprintf(buf, len, THP_DIR "%s", knob);
}

bool have_knob(const char *knob)
{
	char path[160];

	knob_path(path, sizeof(path), knob);
	return !access(path, F_OK);
}

int knob_set(const char *knob, const char *val)
{
	char path[160];

	knob_path(path, sizeof(path), knob);
	return setting(path, val);
}

const char *knob_get(const char *knob)
{
	static char buf[128];
	char path[160];

	knob_path(path, sizeof(path), knob);
	if (file_read(path, buf, sizeof(buf)) < 0)
		return "";
	selected_word(buf);
	return buf;
}

long thp_stat(size_t folio, const char *name)
{
	char path[200], buf[64];

	snprintf(path, sizeof(path), THP_DIR "hugepages-%lukB/stats/%s",
		 (unsigned long)KB(folio), name);
	if (file_read(path, buf, sizeof(buf)) < 0)
		return -1;
	return atol(buf);
}

/* --- faults ------------------------------------------------------------- */

long minflt(void)
{
	struct rusage ru;

	getrusage(RUSAGE_THREAD, &ru);
	return ru.ru_minflt;
}

long store_faults(char *addr, uint64_t val)
{
	long before;

	/* After a fork the stack faults as well: let it do so first. */
	minflt();
	before = minflt();
	*(volatile uint64_t *)addr = val;
	return minflt() - before;
}

static sigjmp_buf access_env;
static volatile sig_atomic_t access_sig;

static void on_access(int sig)
{
	access_sig = sig;
	siglongjmp(access_env, 1);
}

static int access_signal(char *addr, bool store)
{
	struct sigaction sa = { .sa_handler = on_access }, segv, bus;

	access_sig = 0;
	sigaction(SIGSEGV, &sa, &segv);
	sigaction(SIGBUS, &sa, &bus);
	if (!sigsetjmp(access_env, 1)) {
		if (store)
			*(volatile char *)addr = 0x5a;
		else
			(void)*(volatile char *)addr;
	}
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return access_sig;
}

int store_signal(char *addr)
{
	return access_signal(addr, true);
}

int load_signal(const char *addr)
{
	return access_signal((char *)addr, false);
}

/* --- contents ----------------------------------------------------------- */

uint64_t stamp(unsigned int page, unsigned int gen)
{
	uint64_t x = ((uint64_t)gen << 32 | page) + 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* Four words: the first, the last, and two at places of the page's own. */
static int stamp_offset(unsigned int page, int i)
{
	switch (i) {
	case 0:
		return 0;
	case 1:
		return PAGE - 8;
	default:
		return 8 + 8 * (stamp(page, i) % (PAGE / 8 - 2));
	}
}

void stamp_page(char *addr, unsigned int page, unsigned int gen)
{
	for (int i = 3; i >= 0; i--)
		*(volatile uint64_t *)(addr + stamp_offset(page, i)) =
			stamp(page, gen);
}

bool stamp_ok(const char *addr, unsigned int page, unsigned int gen)
{
	for (int i = 0; i < 4; i++)
		if (*(volatile uint64_t *)(addr + stamp_offset(page, i)) !=
		    stamp(page, gen))
			return false;
	return true;
}

void stamp_range(char *addr, unsigned int page, int n, unsigned int gen)
{
	for (int i = 0; i < n; i++)
		stamp_page(addr + i * PAGE, page + i, gen);
}

static void say_bad(const char *addr, unsigned int page, unsigned int gen)
{
	uint64_t found = *(volatile uint64_t *)addr;

	for (unsigned int g = 0; g < 32; g++)
		for (unsigned int p = 0; p < 4096; p++)
			if (found == stamp(p, g)) {
				ksft_print_msg("page %u: generation %u, found page %u of %u\n",
					       page, gen, p, g);
				return;
			}
	ksft_print_msg("page %u: expected generation %u, found %#llx\n",
		       page, gen, (unsigned long long)found);
}

int stamp_bad(const char *addr, unsigned int page, int n, unsigned int gen)
{
	for (int i = 0; i < n; i++)
		if (!stamp_ok(addr + i * PAGE, page + i, gen)) {
			say_bad(addr + i * PAGE, page + i, gen);
			return i;
		}
	return -1;
}

void fill_range(char *addr, unsigned int page, int n, unsigned int gen)
{
	for (int i = 0; i < n; i++) {
		volatile uint64_t *p = (void *)(addr + i * PAGE);
		uint64_t s = stamp(page + i, gen);

		for (unsigned int j = 0; j < PAGE / 8; j++)
			p[j] = s + j;
	}
}

int fill_bad(const char *addr, unsigned int page, int n, unsigned int gen)
{
	for (int i = 0; i < n; i++) {
		const volatile uint64_t *p = (void *)(addr + i * PAGE);
		uint64_t s = stamp(page + i, gen);

		for (unsigned int j = 0; j < PAGE / 8; j++)
			if (p[j] != s + j) {
				ksft_print_msg("word %u of ", j);
				say_bad(addr + i * PAGE, page + i, gen);
				return i;
			}
	}
	return -1;
}

int zero_bad(const char *addr, int n)
{
	for (int i = 0; i < n; i++)
		for (unsigned int j = 0; j < PAGE; j += 8)
			if (*(volatile uint64_t *)(addr + i * PAGE + j)) {
				ksft_print_msg("page %d is not zero\n", i);
				return i;
			}
	return -1;
}

long stamp_faults(char *addr, unsigned int page, int n, unsigned int gen)
{
	long before;

	minflt();
	before = minflt();
	stamp_range(addr, page, n, gen);
	return minflt() - before;
}

/* --- memory ------------------------------------------------------------- */

uint64_t pm_entry(const void *addr)
{
	static int fd = -1;
	static pid_t owner;
	uint64_t ent = 0;

	/* An open pagemap stays with the process that opened it. */
	if (owner != getpid()) {
		if (fd >= 0)
			close(fd);
		fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
		owner = getpid();
	}
	if (pread(fd, &ent, 8, (uintptr_t)addr / PAGE * 8) != 8)
		return 0;
	return ent;
}

uint64_t pm_pfn(const void *addr)
{
	uint64_t ent = pm_entry(addr);

	return ent & PM_PRESENT ? ent & ((1ULL << 55) - 1) : 0;
}

uint64_t kpf(uint64_t pfn)
{
	static int fd = -1;
	uint64_t flags = 0;

	if (fd < 0)
		fd = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	if (pread(fd, &flags, 8, pfn * 8) != 8)
		return 0;
	return flags;
}

bool is_folios(const char *addr, size_t bytes, size_t folio)
{
	uint64_t n = folio / PAGE;

	for (size_t off = 0; off < bytes; off += folio) {
		uint64_t pfn = pm_pfn(addr + off);

		if (!pfn || pfn % n)
			return false;
		if (n == 1) {
			if (kpf(pfn) & (KPF_COMPOUND_HEAD | KPF_COMPOUND_TAIL))
				return false;
			continue;
		}
		if (!(kpf(pfn) & KPF_COMPOUND_HEAD))
			return false;
		for (uint64_t i = 1; i < n; i++)
			if (pm_pfn(addr + off + i * PAGE) != pfn + i ||
			    !(kpf(pfn + i) & KPF_COMPOUND_TAIL))
				return false;
		if (kpf(pfn + n) & KPF_COMPOUND_TAIL)
			return false;
	}
	return true;
}

/* Find the VMA of @addr in smaps; read a field of it if @field. */
static long smaps_find(const void *addr, const char *field, char **start,
		       char **end)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long s = 0, e = 0;
	bool inside = false;
	char line[512];
	long val = -1;

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &s, &e) == 2) {
			if (inside)
				break;
			inside = (uintptr_t)addr >= s && (uintptr_t)addr < e;
			if (inside && start) {
				*start = (char *)s;
				*end = (char *)e;
				val = 0;
				break;
			}
		} else if (inside && field) {
			size_t n = strlen(field);

			if (!strncmp(line, field, n) && line[n] == ':') {
				val = atol(line + n + 1);
				break;
			}
		}
	}
	fclose(f);
	return val;
}

long smaps_kb(const void *addr, const char *field)
{
	return smaps_find(addr, field, NULL, NULL);
}

bool vma_range(const void *addr, char **start, char **end)
{
	return !smaps_find(addr, NULL, start, end);
}

char *reserve(size_t bytes)
{
	char *p = mmap(NULL, bytes + 6 * MB2, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	return (char *)(((uintptr_t)p + 3 * MB2 - 1) & ~(MB2 - 1));
}

char *mmap_anon(void *at, size_t bytes, int prot)
{
	char *p = mmap(at, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS |
		       (at ? MAP_FIXED : 0), -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

char *move(char *from, size_t bytes, char *to)
{
	char *p = mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);

	return p == MAP_FAILED ? NULL : p;
}

int region_get(struct region *r, const struct layout *l, int folios)
{
	r->folio = l->folio;
	r->fpages = l->folio / PAGE;
	r->pages = folios * r->fpages;
	r->size = folios * l->folio;

	for (int try = 0; try < 4; try++) {
		if (try)
			file_write("/proc/sys/vm/compact_memory", "1");
		r->mem = reserve(r->size);
		FAIL_IF(!r->mem, "mmap: %s", strerror(errno));
		r->mem = mmap_anon(r->mem, r->size, PROT_READ | PROT_WRITE);
		FAIL_IF(!r->mem, "mmap: %s", strerror(errno));
		for (size_t off = 0; off < r->size; off += r->folio)
			r->mem[off] = 1;
		if (!is_folios(r->mem, r->size, r->folio)) {
			munmap(r->mem, r->size);
			continue;
		}
		/* Part of a huge page with other rights: mapped by PTEs. */
		for (size_t off = 0; l->folio == MB2 && !l->pmd && off < r->size;
		     off += r->folio) {
			SYS(mprotect(r->mem + off + PAGE, PAGE, PROT_READ));
			SYS(mprotect(r->mem + off + PAGE, PAGE,
				     PROT_READ | PROT_WRITE));
		}
		FAIL_IF(smaps_kb(r->mem, "AnonHugePages") !=
			(l->pmd ? (long)KB(r->size) : 0),
			"%s: mapped in the wrong way", l->name);
		stamp_range(r->mem, 0, r->pages, 0);
		return KSFT_PASS;
	}
	FAIL_IF(true, "could not get folios of %lu KiB",
		(unsigned long)KB(r->folio));
}

pid_t fork_child(void)
{
	pid_t parent = getpid(), pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		alarm(case_seconds());
	}
	return pid;
}

int fork_and_exit(void)
{
	pid_t pid = fork_child();
	int status;

	if (!pid)
		_exit(0);
	FAIL_IF(pid < 0, "fork: %s", strerror(errno));
	FAIL_IF(waitpid(pid, &status, 0) != pid || status, "child failed");
	return KSFT_PASS;
}

int region_get_unshared(struct region *r, const struct layout *l, int folios)
{
	NEED(region_get(r, l, folios));
	return fork_and_exit();
}

/* --- for write faults that reuse large folios ---------------------------- */

bool reuse_faults_fit(const char *mode, int fpages, int folios, long faults)
{
	long pages = (long)fpages * folios, lo, hi;

	if (fpages == 1 || !mode || !strcmp(mode, "never")) {
		lo = pages;
		hi = lo;
	} else if (!strcmp(mode, "block")) {
		lo = fpages < 16 ? folios : pages / 16;
		hi = lo;
	} else if (!strcmp(mode, "whole")) {
		lo = folios;
		hi = lo;
	} else {
		/* Adaptive: at most half of what blocks take, if large enough. */
		lo = 1;
		hi = fpages <= 32 ? folios * 2 : pages / 32;
	}
	if (faults >= lo && faults <= hi)
		return true;
	ksft_print_msg("%ld faults on %d folios of %d pages, expected %ld to %ld\n",
		       faults, folios, fpages, lo, hi);
	return false;
}

int odd_page(const struct region *r)
{
	return r->fpages / 2 + (r->fpages >= 32 ? 5 : 0);
}

void stamp_around(char *mem, int pages, int k, int n, unsigned int gen)
{
	if (k > 0)
		stamp_page(mem + (k - 1) * PAGE, k - 1, gen);
	if (k + n < pages)
		stamp_page(mem + (k + n) * PAGE, k + n, gen);
	stamp_range(mem, 0, k, gen);
	stamp_range(mem + (k + n) * PAGE, k + n, pages - k - n, gen);
}

int around_bad(char *mem, int pages, int k, int n, unsigned int gen)
{
	int bad = stamp_bad(mem, 0, k, gen);

	if (bad < 0)
		bad = stamp_bad(mem + (k + n) * PAGE, k + n, pages - k - n, gen);
	return bad;
}

/* --- a second process --------------------------------------------------- */

struct order {
	char op;
	char *addr;
	unsigned int page, gen;
	int n;
};

static void read_all(int fd, void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		ssize_t n = read(fd, p, len);

		if (n <= 0)
			_exit(n < 0);	/* the one who gives orders is gone */
		p += n;
		len -= n;
	}
}

static void answer(int fd, long ret)
{
	if (write(fd, &ret, sizeof(ret)) != sizeof(ret))
		_exit(1);
}

/* What vmsplice took, as the pipe has it. */
static int spliced_bad(int fd, unsigned int page, int n, unsigned int gen)
{
	char *buf = aligned_alloc(PAGE, n * PAGE);

	read_all(fd, buf, n * PAGE);
	return stamp_bad(buf, page, n, gen);
}

static void __noreturn peer_loop(int in, int out)
{
	int pipefd[2] = { -1, -1 };
	struct order o;
	struct iovec iov;
	pid_t pid;

	for (;;) {
		long ret = 0;

		read_all(in, &o, sizeof(o));
		switch (o.op) {
		case 'v':
			ret = stamp_bad(o.addr, o.page, o.n, o.gen) < 0;
			break;
		case 'V':
			ret = fill_bad(o.addr, o.page, o.n, o.gen) < 0;
			break;
		case 'w':
			ret = stamp_faults(o.addr, o.page, o.n, o.gen);
			break;
		case 'z':
			ret = zero_bad(o.addr, o.n) < 0;
			break;
		case 'u':
			ret = !munmap(o.addr, o.n * PAGE);
			break;
		case 's':
			iov.iov_base = o.addr;
			iov.iov_len = o.n * PAGE;
			ret = !pipe(pipefd) &&
			      fcntl(pipefd[1], F_SETPIPE_SZ, 1 << 20) > 0 &&
			      vmsplice(pipefd[1], &iov, 1, 0) ==
			      (ssize_t)(o.n * PAGE);
			break;
		case 'S':
			ret = spliced_bad(pipefd[0], o.page, o.n, o.gen) < 0;
			break;
		case 'f':
			pid = fork();
			if (pid > 0)
				_exit(0);
			ret = pid < 0 ? -1 : getpid();
			break;
		case 'c':
			pid = fork_child();
			if (!pid)
				for (;;)
					pause();
			ret = pid > 0;
			break;
		case 'x':
			_exit(0);
		}
		answer(out, ret);
	}
}

int peer_fork(struct peer *p)
{
	int to[2], from[2];

	SYS(pipe2(to, O_CLOEXEC));
	SYS(pipe2(from, O_CLOEXEC));
	p->pid = fork_child();
	FAIL_IF(p->pid < 0, "fork: %s", strerror(errno));
	if (!p->pid) {
		close(to[1]);
		close(from[0]);
		peer_loop(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	p->to = to[1];
	p->from = from[0];
	return KSFT_PASS;
}

static long order(struct peer *p, char op, const char *addr, unsigned int page,
		  int n, unsigned int gen)
{
	struct order o = { op, (char *)addr, page, gen, n };
	long ret = -1;

	if (write(p->to, &o, sizeof(o)) != sizeof(o) ||
	    read(p->from, &ret, sizeof(ret)) != sizeof(ret)) {
		ksft_print_msg("the other process is gone\n");
		return -1;
	}
	return ret;
}

bool peer_stamped(struct peer *p, const char *addr, unsigned int page, int n,
		  unsigned int gen)
{
	return order(p, 'v', addr, page, n, gen) == 1;
}

bool peer_filled(struct peer *p, const char *addr, unsigned int page, int n,
		 unsigned int gen)
{
	return order(p, 'V', addr, page, n, gen) == 1;
}

bool peer_stamp(struct peer *p, char *addr, unsigned int page, int n,
		unsigned int gen)
{
	return order(p, 'w', addr, page, n, gen) >= 0;
}

long peer_stamp_faults(struct peer *p, char *addr, unsigned int page, int n,
		       unsigned int gen)
{
	return order(p, 'w', addr, page, n, gen);
}

bool peer_zero(struct peer *p, const char *addr, int n)
{
	return order(p, 'z', addr, 0, n, 0) == 1;
}

bool peer_munmap(struct peer *p, char *addr, size_t bytes)
{
	return order(p, 'u', addr, 0, bytes / PAGE, 0) == 1;
}

bool peer_splice(struct peer *p, char *addr, int n)
{
	return order(p, 's', addr, 0, n, 0) == 1;
}

bool peer_spliced(struct peer *p, unsigned int page, int n, unsigned int gen)
{
	return order(p, 'S', NULL, page, n, gen) == 1;
}

bool peer_succeed(struct peer *p)
{
	pid_t old = p->pid, pid = order(p, 'f', NULL, 0, 0, 0);

	if (pid <= 0)
		return false;
	p->pid = pid;
	return waitpid(old, NULL, 0) == old;
}

bool peer_sleeper(struct peer *p)
{
	return order(p, 'c', NULL, 0, 0, 0) == 1;
}

bool peer_quit(struct peer *p)
{
	struct order o = { .op = 'x' };
	int status = -1;

	if (write(p->to, &o, sizeof(o)) != sizeof(o))
		return false;
	close(p->to);
	close(p->from);
	return waitpid(p->pid, &status, 0) == p->pid && !status;
}

/* --- zram swap ---------------------------------------------------------- */

/* A swap header as mkswap writes it. */
static int make_swap(const char *dev, size_t bytes)
{
	static char page[PAGE] __attribute__((aligned(PAGE)));
	uint32_t *info = (uint32_t *)(page + 1024);
	int fd = open(dev, O_WRONLY | O_CLOEXEC), ret = 0;

	if (fd < 0)
		return -errno;
	memset(page, 0, sizeof(page));
	info[0] = 1;			/* version */
	info[1] = bytes / PAGE - 1;	/* last page */
	memcpy(page + PAGE - 10, "SWAPSPACE2", 10);
	if (write(fd, page, PAGE) != (ssize_t)PAGE)
		ret = errno ? -errno : -EIO;
	if (close(fd) && !ret)
		ret = -errno;
	return ret;
}

int need_swap(void)
{
	const size_t bytes = 256UL << 20;
	char buf[1024];
	char *line;

	if (file_read("/proc/swaps", buf, sizeof(buf)) <= 0)
		return skip("kernel has no swap (CONFIG_SWAP)");
	line = strchr(buf, '\n');
	if (line && line[1])
		return KSFT_PASS;
	snprintf(buf, sizeof(buf), "%zu", bytes);
	if (file_write("/sys/block/zram0/disksize", buf))
		return skip("no swap, and no /dev/zram0 to make one (CONFIG_ZRAM)");
	if (make_swap("/dev/zram0", bytes) || swapon("/dev/zram0", 0))
		return skip("no swap, and swapon of /dev/zram0 failed: %s",
			    strerror(errno));
	shared->made_swap = true;
	return KSFT_PASS;
}

/* --- a memory cgroup ----------------------------------------------------- */

static long kills_before;

/* In the cgroup, ever; -1 if not known. */
static long oom_kills(void)
{
	char buf[1024];
	const char *line;

	if (file_read(CGROUP "memory.events", buf, sizeof(buf)) < 0)
		return -1;
	line = strstr(buf, "oom_kill ");
	return line ? atol(line + strlen("oom_kill ")) : -1;
}

/*
 * One cgroup for all cases: in a new one reclaim may believe statistics that are
 * seconds old, find nothing by them, and end in an oom kill.
 */
int cgroup_enter(void)
{
	if (access(CGROUPS "cgroup.controllers", F_OK))
		return skip("no cgroup2 on " CGROUPS);
	file_write(CGROUPS "cgroup.subtree_control", "+memory");
	if (mkdir(CGROUP, 0755) && errno != EEXIST)
		return skip("cannot make " CGROUP ": %s", strerror(errno));
	if (access(CGROUP "memory.max", F_OK))
		return skip("no memory controller in " CGROUPS);
	file_write(CGROUP "memory.max", "max");
	if (file_write(CGROUP "cgroup.procs", "0"))
		return skip("cannot move into " CGROUP);
	kills_before = oom_kills();
	return KSFT_PASS;
}

int cgroup_limit(long bytes)
{
	char buf[32];

	snprintf(buf, sizeof(buf), "%ld", bytes);
	return file_write(CGROUP "memory.max", buf);
}

void cgroup_reclaim(long bytes)
{
	char buf[32];

	snprintf(buf, sizeof(buf), "%ld", bytes);
	file_write(CGROUP "memory.reclaim", buf);
}

long cgroup_current(void)
{
	char buf[64];

	return file_read(CGROUP "memory.current", buf, sizeof(buf)) < 0 ? -1 : atol(buf);
}

long cgroup_kills(void)
{
	return oom_kills() - kills_before;
}

/* --- the table ---------------------------------------------------------- */

#define MAX_LAYOUTS	32
#define MAX_MODES	8

static struct layout layouts[MAX_LAYOUTS];
static int nr_layouts;
static size_t sizes[MAX_LAYOUTS];
static int nr_sizes;

static int by_size(const void *a, const void *b)
{
	size_t x = *(const size_t *)a, y = *(const size_t *)b;

	return x < y ? -1 : x > y;
}

static void add_layout(size_t folio, bool pmd, unsigned int on)
{
	struct layout *l = &layouts[nr_layouts++];
	char name[64];

	if (folio == PAGE)
		snprintf(name, sizeof(name), "4 KiB folios");
	else if (folio == MB2)
		snprintf(name, sizeof(name), "2 MiB folios mapped by %s",
			 pmd ? "a PMD" : "PTEs");
	else
		snprintf(name, sizeof(name), "%lu KiB folios",
			 (unsigned long)KB(folio));
	*l = (struct layout) { strdup(name), folio, pmd, on };
}

static void find_layouts(void)
{
	DIR *dir = opendir(THP_DIR);
	struct dirent *d;
	unsigned long kb;

	add_layout(PAGE, false, ON_SMALL);
	while (dir && (d = readdir(dir))) {
		char path[300];

		/* Some sizes are for shmem only. */
		snprintf(path, sizeof(path), THP_DIR "%s/enabled", d->d_name);
		if (sscanf(d->d_name, "hugepages-%lukB", &kb) == 1 &&
		    nr_sizes < MAX_LAYOUTS - 4 && !access(path, F_OK))
			sizes[nr_sizes++] = kb << 10;
	}
	if (dir)
		closedir(dir);
	qsort(sizes, nr_sizes, sizeof(sizes[0]), by_size);
	for (int i = 0; i < nr_sizes; i++) {
		size_t s = sizes[i];

		if (s > MB2)
			continue;
		if (s == MB2) {
			add_layout(s, false, ON_PTE2M | ON_64K_UP);
			add_layout(s, true, ON_PMD);
		} else if (s == 16 << 10) {
			add_layout(s, false, ON_SIZES);
		} else if (s == 64 << 10 || s == 1 << 20) {
			add_layout(s, false, ON_SIZES | ON_64K_UP);
		} else {
			add_layout(s, false, ON_REST);
		}
	}
}

static int find_modes(const char *knob, const char *modes[], const char **dflt)
{
	static char buf[256];
	char path[160], *save, *w;
	int n = 0;

	*dflt = NULL;
	modes[0] = NULL;
	if (!knob)
		return 1;
	knob_path(path, sizeof(path), knob);
	if (file_read(path, buf, sizeof(buf)) < 0)
		return 1;
	for (w = strtok_r(buf, "\n ", &save); w && n < MAX_MODES;
	     w = strtok_r(NULL, "\n ", &save)) {
		if (*w == '[') {
			w[strlen(w) - 1] = 0;
			*dflt = ++w;
		}
		modes[n++] = w;
	}
	/* A switch that is on or off. */
	if (n == 1 && !*dflt && (!strcmp(modes[0], "0") || !strcmp(modes[0], "1"))) {
		*dflt = modes[0];
		modes[0] = "0";
		modes[1] = "1";
		return 2;
	}
	return n ? n : 1;
}

/* Modes are about PTEs: what a PMD maps is tried in the default mode alone. */
static bool once(const struct test_case *c, const struct layout *l)
{
	return (c->on & ONCE) || l->pmd;
}

static long khugepaged_scans(void)
{
	char buf[64];

	return file_read(THP_DIR "khugepaged/full_scans", buf, sizeof(buf)) < 0 ?
	       -1 : atol(buf);
}

/* Have khugepaged go to sleep anew, as it is told to, and wait for its last round. */
static void khugepaged_sleep(void)
{
	const long scans = khugepaged_scans();

	setting(THP_DIR "khugepaged/scan_sleep_millisecs", "3600000");
	for (int i = 0; i < 300 && khugepaged_scans() == scans; i++)
		usleep(10000);
}

/*
 * Nothing may collapse or scan behind the back of a case. khugepaged goes to work
 * at once, whatever it is told, when a process enters its empty list: so one that
 * has nothing to collapse is on it for good. It can enter while a size is enabled.
 * The scan that this begins is waited for. Twice, as khugepaged may just have begun
 * to sleep for as long as it was told before.
 */
static void khugepaged_quiet(void)
{
	int entered[2];
	char *mem, end;

	size_set(sizes[nr_sizes - 1], "always");
	if (pipe(entered))
		ksft_exit_fail_perror("pipe");
	fflush(stdout);
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* What was touched counts; the one page is outside of the huge page. */
		mem = reserve(MB2);
		mem = mem ? mmap_anon(mem - PAGE, MB2 + PAGE, PROT_READ | PROT_WRITE) : NULL;
		if (mem) {
			*mem = 1;
			madvise(mem, MB2 + PAGE, MADV_HUGEPAGE);
		}
		close(entered[1]);
		for (;;)
			pause();
	}
	close(entered[1]);
	/* Nothing to read, but the end. */
	if (read(entered[0], &end, 1))
		ksft_exit_fail_perror("read");
	close(entered[0]);
	setting(THP_DIR "khugepaged/alloc_sleep_millisecs", "3600000");
	khugepaged_sleep();
	khugepaged_sleep();
}

static void enable_size(size_t folio)
{
	for (int i = 0; i < nr_sizes; i++)
		size_set(sizes[i], sizes[i] == folio ? "always" : "never");
}

static void run_case(const struct test_case *c, const struct layout *l,
		     const char *knob, const char *mode)
{
	char name[400];
	int status;
	pid_t pid;

	snprintf(name, sizeof(name), "%s ... with %s%s%s%s%s", c->desc, l->name,
		 mode ? ", " : "", mode ? knob : "", mode ? " " : "",
		 mode ? mode : "");
	shared->reason[0] = 0;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* Grandchildren that outlive their parent become ours. */
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		for (int sig = 1; sig < 32; sig++)
			signal(sig, SIG_DFL);
		alarm(case_seconds());
		status = c->fn(l, mode);
		fflush(stdout);
		_exit(status);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		ksft_test_result_fail("%s\n", name);
		return;
	}
	kill(-pid, SIGKILL);
	if (WIFSIGNALED(status)) {
		ksft_print_msg(WTERMSIG(status) == SIGALRM ?
			       "timed out\n" : "killed by %s\n",
			       strsignal(WTERMSIG(status)));
		status = KSFT_FAIL;
	} else {
		status = WEXITSTATUS(status);
	}
	if (status == KSFT_SKIP)
		ksft_test_result_skip("%s: %s\n", name, shared->reason);
	else
		ksft_test_result(status == KSFT_PASS, "%s\n", name);
}

static void __noreturn skip_all(const char *why)
{
	printf("1..0 # SKIP %s\n", why);
	exit(KSFT_PASS);
}

void settings_begin(void)
{
	ksft_print_header();
	main_pid = getpid();
	if (geteuid())
		skip_all("needs root: folio sizes and page frame numbers");
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		ksft_exit_fail_perror("mmap");
	if (access(THP_DIR "enabled", F_OK))
		skip_all("kernel has no transparent huge pages");
	atexit(settings_restore);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	signal(SIGHUP, on_signal);
}

void run_cases(const struct test_case *cases, int nr, const char *knob)
{
	const char *modes[MAX_MODES], *dflt;
	int nr_modes, plan = 0;

	settings_begin();
	find_layouts();
	nr_modes = find_modes(knob, modes, &dflt);
	if (knob && !modes[0])
		ksft_print_msg("kernel has no %s%s: cases run once, as stock\n",
			       THP_DIR, knob);

	for (int i = 0; i < nr_layouts; i++) {
		for (int c = 0; c < nr; c++) {
			if (!(cases[c].on & layouts[i].on))
				continue;
			if (once(&cases[c], &layouts[i]))
				plan++;
			else
				plan += nr_modes;
		}
	}
	ksft_set_plan(plan);

	setting(THP_DIR "enabled", "always");
	setting(THP_DIR "defrag", "always");
	khugepaged_quiet();

	for (int i = 0; i < nr_layouts; i++) {
		struct layout *l = &layouts[i];

		enable_size(l->folio);
		for (int m = 0; m < nr_modes; m++) {
			if (modes[m])
				knob_set(knob, modes[m]);
			for (int c = 0; c < nr; c++)
				if ((cases[c].on & l->on) && !once(&cases[c], l))
					run_case(&cases[c], l, knob, modes[m]);
		}
		if (dflt)
			knob_set(knob, dflt);
		for (int c = 0; c < nr; c++)
			if ((cases[c].on & l->on) && once(&cases[c], l))
				run_case(&cases[c], l, knob, dflt);
	}
	settings_restore();
	ksft_finished();
}
