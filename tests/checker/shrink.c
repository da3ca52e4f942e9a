// SPDX-License-Identifier: GPL-2.0
/*
 * Delta debugging: leave out parts of a failing sequence as long as it fails.
 * Each try is a process tree of its own; a try that should fail gets three
 * chances, for the kernel's own threads are not part of the sequence.
 */
#include "chk.h"

#include <time.h>

static struct failure *shared_f;

static bool fails(struct op *ops, unsigned int n, struct failure *f)
{
	int i, st;
	pid_t pid;

	for (i = 0; i < 2; i++) {
		fflush(stdout);
		pid = fork();
		if (!pid) {
			opt_digest_fd = -1;
			_exit(episode(ops, n, 0, false, shared_f) ? 1 : 0);
		}
		waitpid(pid, &st, 0);
		if (WIFEXITED(st) && WEXITSTATUS(st) == 1) {
			*f = *shared_f;
			return true;
		}
	}
	return false;
}

bool shrink(struct op *ops, unsigned int *len, struct failure *f)
{
	unsigned int n = *len;
	struct op *try = malloc((n + 1) * sizeof(*try));
	unsigned int chunk, at, tries = 0;
	time_t end = time(NULL) + 300;
	struct failure g;

	shared_f = mmap(NULL, sizeof(*shared_f), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (f->step + 1 < n)
		n = f->step + 1;
	if (!fails(ops, n, &g)) {
		printf("# shrink: does not fail again; the sequence is left whole (%u ops)\n", n);
		free(try);
		return false;
	}
	*f = g;
	if (f->step + 1 < n)
		n = f->step + 1;
	for (chunk = (n + 1) / 2; chunk && time(NULL) < end; chunk = chunk > 1 ? (chunk + 1) / 2 : 0) {
		bool again = true;

		while (again && time(NULL) < end) {
			again = false;
			for (at = 0; at < n;) {
				unsigned int cut = at + chunk > n ? n - at : chunk;

				memcpy(try, ops, at * sizeof(*ops));
				memcpy(try + at, ops + at + cut, (n - at - cut) * sizeof(*ops));
				tries++;
				if (n > cut && fails(try, n - cut, &g)) {
					*f = g;
					n -= cut;
					if (f->step + 1 < n)
						n = f->step + 1;
					memcpy(ops, try, n * sizeof(*ops));
					again = chunk == 1;
				} else {
					at += chunk;
				}
				if (time(NULL) >= end)
					break;
			}
		}
		if (chunk == 1)
			break;
	}
	/* smaller ranges say more: halve them where it still fails */
	for (at = 0; at < n && time(NULL) < end; at++) {
		while (ops[at].n > 1 && time(NULL) < end) {
			struct op old = ops[at];

			ops[at].n /= 2;
			tries++;
			if (!fails(ops, n, &g)) {
				ops[at] = old;
				break;
			}
			*f = g;
		}
	}
	printf("# shrink: %u operations left after %u tries\n", n, tries);
	free(try);
	*len = n;
	return true;
}
