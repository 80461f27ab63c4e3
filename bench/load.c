/* The load generator: replays requests that were encoded beforehand, over a few connections, and counts answers.
 *
 * It does as little as it can for each request, so that a figure is the server's and not its own: one thread,
 * epoll, one sendmsg for all requests that may go, one recv for all answers that came. The bodies of large answers
 * are thrown away in the kernel (MSG_TRUNC). Every answer is still checked: its size, its error code, and eight
 * bytes of its content. Anything unexpected ends the run with exit status 2 and one line that says what it was.
 *
 * Closed loop: `--depth` requests are in flight on every connection. Open loop: `--rate` requests a second in all,
 * each timed from when it should have been sent, whether or not the server had answered the ones before.
 *
 * A file of frames is a row of: u32 length, u32 size of the answer (0: any), i32 where its error code is (-1: none),
 * i32 where eight bytes of its content are (-1: none), those eight bytes, then the request. Little endian.
 *
 * In HTTP, every answer must have status 200 and a body of at least the size that is said. A server that hangs up after
 * an answer, with "Connection: close", is connected to again. `--keep` names a file for
 * the bodies, a row of: u32 length, then the body.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

#include "load_stats.h"
#include "load_http.h"

enum {
    CONNECTIONS_MAX = 256,
    RING = 1 << 14,           /* requests in flight on one connection, at most */
    IN_BYTES = 256 << 10,
    IOV_MAX_USED = 64,
    TRUNCATE_FROM = 16 << 10, /* larger answers are not copied out of the kernel */
    STALL_S = 20
};

struct frame {
    uint32_t size, answer_size;
    int32_t error_at, check_at;
    uint64_t check;
    const char *bytes;
};

struct connection {
    int fd;
    uint32_t head, written, tail;    /* ring places: next to be answered, to be written, to be queued */
    uint64_t since_ns[RING];
    uint32_t frame[RING];
    uint32_t next_frame, part;       /* part: bytes of the frame at `written` that are out */
    uint32_t have, got_replies;      /* bytes in `in`; answers got of the request at `head` */
    uint64_t skip;                   /* bytes of the current answer that are still to be thrown away */
    char in[IN_BYTES];
};

static struct frame *frames;
static uint32_t frame_count;
static struct connection *connections;
static enum { KAFKA, NATS, HTTP } protocol;
static enum { STAY, WALK, SHARE } walk; /* every connection its own frame, one after another, or all of them one row */
static int connection_count = 1, depth = 1, watch_pid, epoll_fd;
static struct sockaddr_in address;
static FILE *kept;
static uint32_t replies_per_request = 1;
static double rate, ramp_s, seconds = 1;
static uint64_t bytes_max = UINT64_MAX, requests_max = UINT64_MAX;

static uint32_t shared_frame;
static uint64_t sent, answered, bytes_in, bytes_out, progress_ns, late_max_ns;
static uint64_t window_begin_ns, window_end_ns;
static int in_window, is_ending;
static uint64_t histogram[BUCKETS], late_histogram[BUCKETS];

struct edge {
    uint64_t ns, answered, bytes_in, bytes_out;
    double own_cpu_s, server_cpu_s, machine_cpu_s;
} begin_edge, end_edge;

static uint32_t be32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

/* -- the window that is measured */

static struct edge edge_now(uint64_t now) {
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    struct edge edge = {.ns = now, .answered = answered, .bytes_in = bytes_in, .bytes_out = bytes_out};
    edge.own_cpu_s = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
                     (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6;
    edge.server_cpu_s = process_cpu_s(watch_pid);
    edge.machine_cpu_s = machine_cpu_s();
    return edge;
}

static void move_window(uint64_t now) {
    if (!in_window && !is_ending && now >= window_begin_ns) {
        in_window = 1;
        begin_edge = edge_now(now);
        window_end_ns = now + (uint64_t)(seconds * 1e9);
    }
    if (in_window) {
        uint64_t moved = bytes_in - begin_edge.bytes_in + bytes_out - begin_edge.bytes_out;
        int is_late = now >= window_end_ns && answered > begin_edge.answered; /* not before there is a first answer */
        if (is_late || moved >= bytes_max || answered >= requests_max) {
            end_edge = edge_now(now);
            in_window = 0;
            is_ending = 1;
        }
    }
}

/* -- requests out */

static void queue(struct connection *c, uint64_t since_ns) {
    if (c->tail - c->head >= RING) fail("more than %d requests wait on one connection: the server is too slow", RING);
    if (walk == SHARE) c->next_frame = shared_frame++ % frame_count;
    c->since_ns[c->tail % RING] = since_ns;
    c->frame[c->tail % RING] = c->next_frame;
    c->tail++;
    sent++;
    if (walk == WALK) c->next_frame = (c->next_frame + 1) % frame_count;
}

static void flush(struct connection *c) {
    while (c->written != c->tail) {
        struct iovec parts[IOV_MAX_USED];
        int count = 0;
        for (uint32_t at = c->written; at != c->tail && count < IOV_MAX_USED; at++, count++) {
            struct frame *f = &frames[c->frame[at % RING]];
            uint32_t done = at == c->written ? c->part : 0;
            parts[count] = (struct iovec){(char *)f->bytes + done, f->size - done};
        }
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
        ssize_t out = sendmsg(c->fd, &message, MSG_NOSIGNAL);
        if (out < 0 && errno == EAGAIN) return; /* EPOLLOUT will come: edge-triggered */
        if (out < 0) fail("a request cannot be sent: %s", strerror(errno));
        bytes_out += (uint64_t)out;
        uint64_t left = (uint64_t)out + c->part;
        while (c->written != c->tail && left >= frames[c->frame[c->written % RING]].size)
            left -= frames[c->frame[c->written++ % RING]].size;
        c->part = (uint32_t)left;
    }
}

/* -- answers in */

static void answer_done(struct connection *c, uint64_t now) {
    progress_ns = now;
    if (++c->got_replies < replies_per_request) return;
    c->got_replies = 0;
    uint64_t since = c->since_ns[c->head++ % RING];
    answered++;
    if (rate > 0 ? since >= window_begin_ns && (!is_ending || since < end_edge.ns) : in_window)
        histogram[bucket_of(now - since)]++;
    if (rate <= 0 && !is_ending && sent < requests_max) queue(c, now);
}

static struct frame *waiting(struct connection *c) {
    if (c->head == c->tail) fail("an answer arrived without a request");
    return &frames[c->frame[c->head % RING]];
}

static uint32_t head_bytes(const struct frame *f) {
    int32_t need = f->error_at + 2 > f->check_at + 8 ? f->error_at + 2 : f->check_at + 8;
    return 4 + (need > 0 ? (uint32_t)need : 0);
}

/* The bytes that belong to whole answers, or to answers whose rest can be thrown away. */
static uint32_t parse_kafka(struct connection *c, uint64_t now) {
    uint32_t at = 0;
    while (c->have - at >= 4) {
        struct frame *f = waiting(c);
        uint32_t size = be32(c->in + at), head = head_bytes(f);
        const char *body = c->in + at + 4;
        if (f->answer_size && size != f->answer_size)
            fail("an answer has %u bytes, expected %u", size, f->answer_size);
        if (head > size + 4) fail("an answer has %u bytes, expected at least %u", size, head - 4);
        if (c->have - at < head) break;
        if (f->error_at >= 0 && (body[f->error_at] || body[f->error_at + 1]))
            fail("an answer has error code %d", (int)(int16_t)(be32(body + f->error_at) >> 16));
        if (f->check_at >= 0 && memcmp(body + f->check_at, &f->check, 8))
            fail("an answer does not hold what was asked for");
        uint32_t here = c->have - at;
        if (here < size + 4) {
            c->skip = size + 4 - here;
            return c->have;
        }
        at += size + 4;
        answer_done(c, now);
    }
    return at;
}

static uint32_t parse_nats(struct connection *c, uint64_t now) {
    uint32_t at = 0;
    while (at < c->have) {
        char *line = c->in + at, *end = memchr(line, '\n', c->have - at);
        if (!end) break;
        uint32_t line_size = (uint32_t)(end - line) + 1;
        if (!memcmp(line, "MSG ", 4)) {
            char *number = end;
            while (number[-1] != ' ') number--;
            uint32_t size = (uint32_t)strtoul(number, NULL, 10);
            if (c->have - at < line_size + size + 2) break;
            struct frame *f = waiting(c);
            if (f->answer_size && size != f->answer_size)
                fail("a message has %u bytes, expected %u", size, f->answer_size);
            if (f->check_at >= 0 && (size < (uint32_t)f->check_at + 8 || memcmp(end + 1 + f->check_at, &f->check, 8)))
                fail("unexpected message: %.*s", (int)size, end + 1);
            at += line_size + size + 2;
            answer_done(c, now);
        } else if (line[0] == '-' || line[0] == 'H') {
            fail("nats: %.*s", (int)(c->have - at), line);
        } else {
            at += line_size; /* PING, +OK, INFO */
        }
    }
    return at;
}

static void connect_one(struct connection *c, const struct frame *hello);

static uint32_t parse_http(struct connection *c, uint64_t now) {
    uint32_t at = 0;
    struct http_head head;
    while (at < c->have && read_http_head(c->in + at, c->have - at, &head)) {
        struct frame *f = waiting(c);
        const char *body = c->in + at + head.head_size;
        uint32_t whole = head.head_size + head.body_size;
        if (whole > IN_BYTES) fail("an answer has %u bytes, at most %d", whole, IN_BYTES);
        if (c->have - at < whole) break;
        if (head.status != 200) fail("status %d: %.*s", head.status, (int)head.body_size, body);
        if (head.body_size < f->answer_size)
            fail("an answer has %u bytes, expected at least %u: %.*s", head.body_size, f->answer_size,
                 (int)head.body_size, body);
        if (kept) {
            fwrite(&head.body_size, 4, 1, kept);
            fwrite(body, 1, head.body_size, kept);
        }
        at += whole;
        answer_done(c, now);
        if (head.closes) {
            if (depth > 1 || rate > 0) fail("a server that hangs up can be sent one request at a time");
            close(c->fd);
            connect_one(c, NULL);
        }
    }
    return at;
}

static uint32_t parse(struct connection *c, uint64_t now) {
    return protocol == HTTP ? parse_http(c, now) : protocol == NATS ? parse_nats(c, now) : parse_kafka(c, now);
}

static void receive(struct connection *c, uint64_t now) {
    static char nowhere[1 << 20];
    for (;;) {
        if (c->skip) {
            size_t want = c->skip < sizeof nowhere ? c->skip : sizeof nowhere;
            ssize_t got = recv(c->fd, nowhere, want, want >= TRUNCATE_FROM / 4 ? MSG_TRUNC : 0);
            if (got < 0 && errno == EAGAIN) return;
            if (got <= 0) fail("the server closed a connection: %s", got ? strerror(errno) : "it hung up");
            bytes_in += (uint64_t)got;
            c->skip -= (uint64_t)got;
            progress_ns = now;
            if (!c->skip) answer_done(c, now);
            continue;
        }
        size_t want = IN_BYTES - c->have;
        if (protocol == KAFKA && c->head != c->tail && waiting(c)->answer_size > TRUNCATE_FROM)
            want = head_bytes(waiting(c)) - c->have;
        ssize_t got = recv(c->fd, c->in + c->have, want, 0);
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) fail("the server closed a connection: %s", got ? strerror(errno) : "it hung up");
        bytes_in += (uint64_t)got;
        c->have += (uint32_t)got;
        uint32_t used = parse(c, now);
        c->have -= used;
        if (c->have && used) memmove(c->in, c->in + used, c->have);
        if ((size_t)got < want) return; /* the socket is empty; edge-triggered epoll tells of more */
    }
}

/* -- set-up */

static struct frame *read_frames(const char *path, uint32_t *count) {
    int fd = open(path, O_RDONLY);
    struct stat facts;
    if (fd < 0 || fstat(fd, &facts)) fail("%s: %s", path, strerror(errno));
    char *data = malloc((size_t)facts.st_size);
    for (off_t at = 0; at < facts.st_size;) {
        ssize_t got = read(fd, data + at, (size_t)(facts.st_size - at));
        if (got <= 0) fail("%s cannot be read", path);
        at += got;
    }
    close(fd);
    struct frame *found = NULL;
    *count = 0;
    for (char *at = data; at + 24 <= data + facts.st_size; at += 24 + found[*count - 1].size) {
        found = realloc(found, (*count + 1) * sizeof *found);
        struct frame *f = &found[(*count)++];
        memcpy(f, at, 24);
        f->bytes = at + 24;
    }
    if (!*count) fail("%s holds no frames", path);
    return found;
}

static void connect_one(struct connection *c, const struct frame *hello) {
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect: %s", strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (hello) { /* ends in PING: the answer to it says that all before it is in place */
        if (send(c->fd, hello->bytes, hello->size, MSG_NOSIGNAL) != (ssize_t)hello->size) fail("hello: not sent");
        uint32_t have = 0;
        while (have < 6 || memcmp(c->in + have - 6, "PONG\r\n", 6)) {
            struct pollfd ready = {.fd = c->fd, .events = POLLIN};
            ssize_t got = poll(&ready, 1, 5000) == 1 ? recv(c->fd, c->in + have, IN_BYTES - 1 - have, 0) : -1;
            if (got <= 0) fail("hello: no answer");
            have += (uint32_t)got;
        }
    }
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event);
}

static void report(void) {
    double took_s = (double)(end_edge.ns - begin_edge.ns) / 1e9;
    printf("{\"answered\": %lu, \"answered_total\": %lu, \"seconds\": %.6f, \"bytes_in\": %lu, \"bytes_out\": %lu, "
           "\"own_cpu_s\": %.6f, \"server_cpu_s\": %.6f, \"machine_cpu_s\": %.6f, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, \"late_p99_us\": %.1f, \"late_max_us\": %.1f}\n",
           end_edge.answered - begin_edge.answered, answered, took_s, end_edge.bytes_in - begin_edge.bytes_in,
           end_edge.bytes_out - begin_edge.bytes_out, end_edge.own_cpu_s - begin_edge.own_cpu_s,
           end_edge.server_cpu_s - begin_edge.server_cpu_s, end_edge.machine_cpu_s - begin_edge.machine_cpu_s,
           percentile_us(histogram, 0.5),
           percentile_us(histogram, 0.99), percentile_us(histogram, 0.999), percentile_us(histogram, 1),
           percentile_us(late_histogram, 0.99), (double)late_max_ns / 1e3);
}

static void send_due(uint64_t start_ns, uint64_t *due, uint64_t now) {
    while (!is_ending) {
        uint64_t at = start_ns + (uint64_t)((double)*due * 1e9 / rate);
        if (at > now) return;
        struct connection *c = &connections[(*due)++ % (uint64_t)connection_count];
        if (in_window) {
            late_histogram[bucket_of(now - at)]++;
            if (now - at > late_max_ns) late_max_ns = now - at;
        }
        queue(c, at);
        flush(c);
    }
}

static void run(void) {
    int timer = -1;
    uint64_t start = now_ns(), due = 0;
    progress_ns = start;
    window_begin_ns = start + (uint64_t)(ramp_s * 1e9);
    move_window(start);
    if (rate > 0) {
        prctl(PR_SET_TIMERSLACK, 1);
        timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
        long every_ns = (long)(1e9 / rate);
        struct itimerspec often = {{every_ns / 1000000000, every_ns % 1000000000}, {0, 1}};
        timerfd_settime(timer, 0, &often, NULL);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer, &event);
    } else {
        for (int i = 0; i < connection_count; i++)
            for (int k = 0; k < depth && sent < requests_max; k++) queue(&connections[i], start);
        for (int i = 0; i < connection_count; i++) flush(&connections[i]);
    }
    while (!is_ending || answered < sent) {
        struct epoll_event events[64];
        int count = epoll_wait(epoll_fd, events, 64, 100);
        uint64_t now = now_ns();
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) {
                uint64_t ticks;
                if (read(timer, &ticks, sizeof ticks) > 0) send_due(start, &due, now);
                continue;
            }
            if (events[i].events & EPOLLIN) receive(c, now);
            if (events[i].events & (EPOLLERR | EPOLLHUP)) fail("the server closed a connection");
            flush(c);
        }
        move_window(now);
        if (now > progress_ns + STALL_S * 1000000000ull)
            fail("no answer for %d s: %lu sent, %lu answered", STALL_S, sent, answered);
    }
}

int main(int argc, char **argv) {
    const char *host = "127.0.0.1", *frames_path = NULL, *hello_path = NULL;
    int port = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--host")) host = value;
        else if (!strcmp(name, "--port")) port = atoi(value);
        else if (!strcmp(name, "--frames")) frames_path = value;
        else if (!strcmp(name, "--hello")) hello_path = value;
        else if (!strcmp(name, "--protocol")) protocol = !strcmp(value, "nats") ? NATS : HTTP;
        else if (!strcmp(name, "--keep")) {
            if (!(kept = fopen(value, "wb"))) fail("%s: %s", value, strerror(errno));
        }
        else if (!strcmp(name, "--connections")) connection_count = atoi(value);
        else if (!strcmp(name, "--depth")) depth = atoi(value);
        else if (!strcmp(name, "--walk")) walk = (unsigned)atoi(value);
        else if (!strcmp(name, "--replies")) replies_per_request = (uint32_t)atoi(value);
        else if (!strcmp(name, "--rate")) rate = atof(value);
        else if (!strcmp(name, "--ramp")) ramp_s = atof(value);
        else if (!strcmp(name, "--seconds")) seconds = atof(value);
        else if (!strcmp(name, "--bytes-max")) bytes_max = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--requests-max")) requests_max = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--watch")) watch_pid = atoi(value);
        else fail("unknown option %s", name);
    }
    if (!frames_path || !port) fail("--frames and --port are needed");
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, host, &address.sin_addr);
    if (connection_count < 1 || connection_count > CONNECTIONS_MAX) fail("1 to %d connections", CONNECTIONS_MAX);
    if (depth < 1 || depth > RING) fail("a depth of 1 to %d", RING);
    frames = read_frames(frames_path, &frame_count);
    uint32_t hello_count = 0;
    struct frame *hellos = hello_path ? read_frames(hello_path, &hello_count) : NULL;
    connections = calloc((size_t)connection_count, sizeof *connections);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < connection_count; i++) {
        connections[i].next_frame = (uint32_t)((uint64_t)i * frame_count / (uint64_t)connection_count);
        connect_one(&connections[i], hellos ? &hellos[(uint32_t)i % hello_count] : NULL);
    }
    run();
    if (kept && fclose(kept)) fail("what came cannot be kept: %s", strerror(errno));
    report();
    return 0;
}
