// SPDX-License-Identifier: GPL-2.0
/*
 * A failing sequence as a C program: straight-line, all processes run the same
 * text, a shared counter says whose turn it is.
 */
#include "chk.h"

static const char head[] =
"// SPDX-License-Identifier: GPL-2.0\n"
"// gcc -O2 -static -o repro repro.c; where ring_* or uffd_* appear, uring.c and uffd.c of tests/checker\n"
"// as well, with the include directories of tests/Makefile\n"
"#define _GNU_SOURCE\n"
"#include <errno.h>\n#include <fcntl.h>\n#include <sched.h>\n#include <setjmp.h>\n#include <signal.h>\n"
"#include <stdio.h>\n#include <stdint.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <sys/prctl.h>\n#include <sys/syscall.h>\n"
"#include <sys/uio.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\n"
"#define PG 4096UL\n#define A(p) ((unsigned char *)(0x100000000000UL + (p) * PG))\n"
"static volatile int *turn, *pids;\nstatic int me, step;\nstatic sigjmp_buf out;\nint scratch_fd;\n"
"int ring_pin(int, unsigned, unsigned), ring_io(int, int, unsigned); void ring_drop(int);\n"
"int uffd_open_fd(int), uffd_reg(int, unsigned, unsigned, int), uffd_wp(int, unsigned, unsigned, int);\n"
"static void segv(int s) { (void)s; siglongjmp(out, 1); }\n"
"/* process p does this step, the others wait until it is done */\n"
"#define P(p) for (int once_ = begin(p); once_; once_ = end())\n"
"static int begin(int p) { while (*turn < step) usleep(50); if (me != p) step++; return me == p; }\n"
"static int end(void) { *turn = ++step; return 0; }\n"
"static void put(const char *f, const char *s) { int fd = open(f, O_WRONLY); if (fd < 0 || write(fd, s, strlen(s)) < 0) printf(\"# %s: %m\\n\", f); close(fd); }\n"
"static uint64_t rnd(uint64_t *s) { uint64_t z = (*s += 0x9e3779b97f4a7c15ULL); z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL; z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL; return z ^ (z >> 31); }\n"
"static unsigned char buf[PG];\n"
"/* which bytes of page i op value v writes, and what: as in ops.c and model.c */\n"
"static int geom(uint32_t v, unsigned i, uint32_t *off, uint32_t *len)\n"
"{\n\tstatic const unsigned every[8] = { 1, 1, 1, 1, 2, 16, 64, 1 };\n"
"\tuint64_t r = v * 0x10001ULL + i, s = v * 2654435761ULL + ((uint64_t)i << 32);\n\tunsigned st = (v >> 8) & 7, k;\n"
"\trnd(&r); *off = 0; *len = PG;\n"
"\tint skip = i % every[st] != v % every[st];\n"
"\tif (st == 7) skip = rnd(&r) % 10 != 0;\n"
"\tif (v % 8 == 1 || v % 8 == 6) { *len = 1; *off = rnd(&r) % PG; }\n"
"\tif (v % 8 == 2 || v % 8 == 7) { *len = 8; *off = rnd(&r) % (PG / 8) * 8; }\n"
"\tif (v % 8 == 3) { *off = rnd(&r) % (PG - 300); *len = 1 + rnd(&r) % 300; }\n"
"\tif (v % 8 == 4) s &= 3;\n"
"\tif (v % 8 == 5) memset(buf + *off, 0, *len);\n"
"\telse if (!(*off & 7) && !(*len & 7)) { uint64_t x = rnd(&s) | 1, y = rnd(&s) & ~1ULL; for (k = 0; k < *len; k += 8, x += y) memcpy(buf + *off + k, &x, 8); }\n"
"\telse for (k = 0; k < *len; k++) buf[*off + k] = rnd(&s) | 1;\n"
"\treturn !skip;\n}\n"
"enum { STORE, LOAD, KERNEL, FORCED, REMOTE };\n"
"static void acc(int how, unsigned a, unsigned n, uint32_t v, int q)\n"
"{\n\tint mem = open(\"/proc/self/mem\", O_RDWR);\n\tfor (unsigned k = 0; k < n; k++) {\n"
"\t\tunsigned j = ((v >> 4) & 3) == 1 ? n - 1 - k : ((v >> 4) & 3) == 2 ? k * 7919UL % n : k, i = a + j;\n"
"\t\tuint32_t off, len;\n\t\tif (!geom(v, i, &off, &len) && how != LOAD) continue;\n"
"\t\tstruct iovec l = { buf + off, len }, r = { A(i) + off, len };\n"
"\t\tif (sigsetjmp(out, 1)) continue;\n"
"\t\tif (how == STORE) { if (len == 1) *(volatile char *)(A(i) + off) = buf[off]; else memcpy(A(i) + off, buf + off, len); }\n"
"\t\telse if (how == LOAD) (void)*(volatile char *)A(i);\n"
"\t\telse if (how == FORCED) { if (pwrite(mem, buf + off, len, (off_t)(A(i) + off)) < 0) continue; }\n"
"\t\telse process_vm_writev(how == KERNEL ? getpid() : pids[q], &l, 1, &r, 1, 0);\n"
"\t}\n\tclose(mem);\n}\n"
"static void expect(unsigned i, unsigned off, int want)\n"
"{\n\tint mem = open(\"/proc/self/mem\", O_RDONLY);\n\tunsigned char c = 0;\n\n"
"\tif (pread(mem, &c, 1, (off_t)(A(i) + off)) != 1) printf(\"not readable: %m\\n\");\n"
"\tprintf(\"process %d page %u byte %u: 0x%02x, must be 0x%02x: %s\\n\", me, i, off, c, want, c == want ? \"ok\" : \"WRONG\");\n}\n\n"
"int main(void)\n{\n\tturn = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);\n"
"\tchar thp[99];\n\n"
"\tput(\"/sys/kernel/mm/transparent_hugepage/enabled\", \"always\");\n"
"\tfor (int kb = 16; kb <= 2048; kb *= 2) {\n"
"\t\tsprintf(thp, \"/sys/kernel/mm/transparent_hugepage/hugepages-%dkB/enabled\", kb);\n"
"\t\tput(thp, \"always\");\n\t}\n"
"\t/* stay until all are gone, whoever of them ends first */\n"
"\tprctl(PR_SET_CHILD_SUBREAPER, 1);\n"
"\tif (fork()) {\n\t\twhile (wait(NULL) > 0)\n\t\t\t;\n\t\treturn 0;\n\t}\n"
"\tpids = turn + 16;\n\tpids[0] = getpid();\n\tscratch_fd = memfd_create(\"scratch\", 0);\n\tint uffd = -1, pipe_[16][2];\n"
"\t(void)uffd; (void)pipe_;\n"
"\tsigaction(SIGSEGV, &(struct sigaction){ .sa_handler = segv }, NULL);\n";

static void one(const struct op *o)
{
	char env[200];

	switch (o->t) {
	case OP_MAP:
	case OP_MAPSH:
		printf("mmap(A(%u), %u * PG, %u, MAP_FIXED | MAP_ANONYMOUS | %s, -1, 0);",
		       o->a, o->n, o->v, o->t == OP_MAP ? "MAP_PRIVATE" : "MAP_SHARED");
		break;
	case OP_WRITE:
		printf("acc(STORE, %u, %u, %u, 0);", o->a, o->n, o->v);
		break;
	case OP_READ:
		printf("acc(LOAD, %u, %u, %u, 0);", o->a, o->n, o->v);
		break;
	case OP_KWRITE:
		printf("acc(KERNEL, %u, %u, %u, 0);", o->a, o->n, o->v);
		break;
	case OP_MEMWRITE:
		printf("acc(FORCED, %u, %u, %u, 0);", o->a, o->n, o->v);
		break;
	case OP_PVWRITE:
		printf("acc(REMOTE, %u, %u, %u, %u);", o->a, o->n, o->v, o->q);
		break;
	case OP_EXIT:
		printf("{ end(); _exit(0); }");
		break;
	case OP_RESET:
		printf("munmap(A(0), %u * PG);", NPAGES);
		break;
	case OP_MUNMAP:
		printf("munmap(A(%u), %u * PG);", o->a, o->n);
		break;
	case OP_MREMAP:
		printf("{ munmap(A(%u), %u * PG); mremap(A(%u), %u * PG, %u * PG, MREMAP_MAYMOVE | MREMAP_FIXED%s, A(%u)); }",
		       o->b, o->n, o->a, o->n, o->n, o->v ? " | 4" : "", o->b);
		break;
	case OP_MPROTECT:
		printf("mprotect(A(%u), %u * PG, %u);", o->a, o->n, o->v);
		break;
	case OP_MADVISE:
		printf("madvise(A(%u), %u * PG, %d /* %s */);", o->a, o->n,
		       madv_list[o->v % MADV_NR], madv_name[o->v % MADV_NR]);
		break;
	case OP_MLOCK:
		printf("mlock(A(%u), %u * PG);", o->a, o->n);
		break;
	case OP_MUNLOCK:
		printf("munlock(A(%u), %u * PG);", o->a, o->n);
		break;
	case OP_UFFD_REG:
		printf("{ if (uffd < 0) uffd = uffd_open_fd(%u); uffd_reg(uffd, %u, %u, 1); }",
		       o->v == 2, o->a, o->n);
		break;
	case OP_UFFD_WP:
		printf("uffd_wp(uffd, %u, %u, %u);", o->a, o->n, o->v);
		break;
	case OP_UFFD_UNREG:
		printf("uffd_reg(uffd, %u, %u, 0);", o->a, o->n);
		break;
	case OP_SDCLEAR:
		printf("put(\"/proc/self/clear_refs\", \"4\");");
		break;
	case OP_SPLICE:
		printf("{ pipe(pipe_[%u]); vmsplice(pipe_[%u][1], &(struct iovec){ A(%u), %u * PG }, 1, 0); }",
		       o->b, o->b, o->a, o->n);
		break;
	case OP_RING:
		printf("ring_pin(%u, %u, %u);", o->b, o->a, o->n);
		break;
	case OP_PINREAD:
	case OP_PINWRITE:
		printf("ring_io(%u, %d, 1); /* %s */", o->a, o->t == OP_PINWRITE, op_info[o->t].name);
		break;
	case OP_UNPIN:
		printf("ring_drop(%u);", o->a);
		break;
	case OP_SPLIT:
		printf("{ char s[99]; sprintf(s, \"%%d,%%p,%%p,0\", getpid(), A(%u), A(%u)); put(\"/sys/kernel/debug/split_huge_pages\", s); }",
		       o->a, o->a + o->n);
		break;
	default:
		env_describe(o, env, sizeof(env));
		printf("%s", env[0] ? env : ";");
	}
}

void repro_print(const struct op *ops, unsigned int n, const struct failure *f)
{
	unsigned int i, forks = 0;
	char line[128];

	printf("# --- the sequence, for --replay ---\n");
	for (i = 0; i < n; i++) {
		op_print(line, sizeof(line), &ops[i]);
		printf("%s\n", line);
	}
	printf("# --- as a C program: %s ---\n%s", f->msg, head);
	for (i = 0; i < n; i++) {
		const struct op *o = &eff[i];
		int p = o->t >= OP_SWAPCYCLE && o->t <= OP_PAUSE && o->t != OP_SPLIT ? 0 : o->p;

		if (o->n == EFF_SKIP || o->t == OP_CHECK || o->t == OP_CHECKALL)
			continue;
		if (o->t == OP_FORK) {	/* a statement: the child goes on behind it */
			printf("\t/* %u */ if (begin(%u)) { int f_ = fork(); if (!f_) { me = %u; pids[%u] = getpid(); step++; } else { while (!pids[%u]) usleep(50); end(); } }\n",
			       i, p, o->q, o->q, o->q);
			forks++;
			continue;
		}
		printf("\t/* %u */ P(%d) ", i, p);
		one(o);
		printf("\n");
	}
	if (f->want >= 0)
		printf("\tP(%d) expect(%u, %u, 0x%02x);\n", f->proc, f->page, f->off, f->want);
	else
		printf("\t/* here: %s */\n", f->msg);
	printf("\treturn 0;\n}\n# --- end ---\n");
	fflush(stdout);
}
