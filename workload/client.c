// SPDX-License-Identifier: GPL-2.0
/*
 * A client of Redis on a Unix socket: one request at a time, as a program that waits
 * for each answer; only the first load sends many at once.
 *
 * Each value tells its key and how often that was set, so that a write the server
 * lost is seen by client_verify().
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "workload.h"

#define DEPTH		32	/* SETs that client_load() sends at once */
#define BUF		(64 * KB)

/**
 * client_open - connect, waiting for the server to listen
 * @c: gets the client
 * @path: the socket
 * @keys: how many keys there will be
 */
bool client_open(struct client *c, const char *path, size_t keys)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	unsigned int i;

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	for (i = 0; i < 500; i++) {
		c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (!connect(c->fd, (struct sockaddr *)&a, sizeof(a)))
			break;
		close(c->fd);
		usleep(10000);
	}
	if (i == 500)
		return false;
	c->keys = keys;
	c->version = scratch(keys * sizeof(*c->version));
	c->buf = scratch(BUF);
	return true;
}

void client_close(struct client *c)
{
	close(c->fd);
	munmap(c->version, c->keys * sizeof(*c->version));
	munmap(c->buf, BUF);
}

static bool put(struct client *c, const char *from, size_t len)
{
	ssize_t n;

	for (; len; from += n, len -= (size_t)n) {
		n = send(c->fd, from, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n <= 0)
			return false;
	}
	return true;
}

static bool get(struct client *c, char *to, size_t len)
{
	ssize_t n;

	for (; len; to += n, len -= (size_t)n) {
		n = recv(c->fd, to, len, 0);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n <= 0)
			return false;
	}
	return true;
}

static void value_of(const struct client *c, uint32_t key, char *to)
{
	char head[32];
	int n = snprintf(head, sizeof(head), "%u:%u:", key, c->version[key]);

	memset(to, 'a' + (int)(c->version[key] % 26), VALUE_BYTES);
	memcpy(to, head, (size_t)n);
}

/* The request that sets a key once more; its length. */
static size_t set_request(struct client *c, uint32_t key, char *to)
{
	size_t n = (size_t)sprintf(to, "*3\r\n$3\r\nSET\r\n$14\r\nkey:%010u\r\n$%d\r\n", key,
				   VALUE_BYTES);

	c->version[key]++;
	value_of(c, key, to + n);
	memcpy(to + n + VALUE_BYTES, "\r\n", 2);
	return n + VALUE_BYTES + 2;
}

/**
 * client_load - set every key once, in order
 */
bool client_load(struct client *c)
{
	char reply[5 * DEPTH];
	size_t key, i, n;

	for (key = 0; key < c->keys; key += i) {
		for (i = 0, n = 0; i < DEPTH && key + i < c->keys; i++)
			n += set_request(c, (uint32_t)(key + i), c->buf + n);
		if (!put(c, c->buf, n) || !get(c, reply, 5 * i))
			return false;
		for (n = 0; n < i; n++)
			if (memcmp(reply + 5 * n, "+OK\r\n", 5))
				return false;
	}
	return true;
}

/**
 * client_set - set a key and wait for the answer
 */
bool client_set(struct client *c, uint32_t key)
{
	size_t n = set_request(c, key, c->buf);
	char reply[5];

	return put(c, c->buf, n) && get(c, reply, 5) && !memcmp(reply, "+OK\r\n", 5);
}

/* A line of an answer, without its end. */
static bool get_line(struct client *c, char *to, size_t len)
{
	size_t n = 0;

	do {
		if (n + 1 >= len || !get(c, to + n, 1))
			return false;
	} while (to[n++] != '\n');
	to[n - (n > 1 ? 2 : 1)] = '\0';
	return true;
}

/**
 * client_command - send an inline command
 * @reply: gets the answer, of whatever type, cut to @len
 *
 * Return: false for an error of the server's too.
 */
bool client_command(struct client *c, const char *command, char *reply, size_t len)
{
	char head[512];
	size_t n, got;

	snprintf(c->buf, BUF, "%s\r\n", command);
	if (!put(c, c->buf, strlen(c->buf)) || !get_line(c, head, sizeof(head)))
		return false;
	if (*head != '$') {
		snprintf(reply, len, "%s", head + 1);
		return *head != '-';
	}
	n = strtoul(head + 1, NULL, 10);
	if (head[1] == '-' || n + 2 > BUF || !get(c, c->buf, n + 2))
		return false;
	got = n < len - 1 ? n : len - 1;
	memcpy(reply, c->buf, got);
	reply[got] = '\0';
	return true;
}

/**
 * client_verify - does the server have what was set last?
 */
bool client_verify(struct client *c, uint32_t key)
{
	char command[64], have[VALUE_BYTES + 1], want[VALUE_BYTES];

	snprintf(command, sizeof(command), "GET key:%010u", key);
	value_of(c, key, want);
	return client_command(c, command, have, sizeof(have)) &&
	       !memcmp(have, want, VALUE_BYTES);
}

/**
 * client_info - a number out of the server's INFO, or -1
 */
double client_info(struct client *c, const char *section, const char *field)
{
	static char info[BUF];
	char command[64], want[64], *at;

	snprintf(command, sizeof(command), "INFO %s", section);
	snprintf(want, sizeof(want), "\n%s:", field);
	if (!client_command(c, command, info, sizeof(info)))
		return -1;
	at = strstr(info, want);
	return at ? strtod(at + strlen(want), NULL) : -1;
}
