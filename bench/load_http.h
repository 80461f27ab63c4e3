/* The head of an HTTP answer: its status, and how long the head and the body are. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct http_head {
    int status;
    uint32_t head_size, body_size;
    int closes; /* the server hangs up after it */
};

/* Whether the head is there as a whole. What says no length, or comes in chunks, ends the run. */
static int read_http_head(const char *at, uint32_t have, struct http_head *found) {
    const char *end = memmem(at, have, "\r\n\r\n", 4);
    if (!end) return 0;
    if (have < 12 || memcmp(at, "HTTP/1.1 ", 9)) fail("not an answer in HTTP/1.1: %.*s", (int)(end - at), at);
    int has_length = 0;
    *found = (struct http_head){.status = atoi(at + 9), .head_size = (uint32_t)(end - at) + 4};
    for (const char *line = memchr(at, '\n', have) + 1; line < end; line = (const char *)memchr(line, '\n', have) + 1) {
        if (!strncasecmp(line, "content-length:", 15)) {
            found->body_size = (uint32_t)strtoul(line + 15, NULL, 10);
            has_length = 1;
        } else if (!strncasecmp(line, "connection: close", 17)) {
            found->closes = 1;
        }
    }
    if (!has_length) fail("an answer without its length: %.*s", (int)(end - at), at);
    return 1;
}
