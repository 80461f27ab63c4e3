/* What load.c measures with: time, a histogram of latencies, CPU time of a process and of the machine. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUB = 64, BUCKETS = 64 * SUB }; /* SUB buckets for each power of two: 1.6% */

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(2);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* -- the histogram */

static uint32_t bucket_of(uint64_t ns) {
    if (ns < SUB) return (uint32_t)ns;
    int power = 63 - __builtin_clzll(ns);
    return (uint32_t)((power - 5) * SUB + (int)((ns >> (power - 6)) & (SUB - 1)));
}

static double bucket_us(uint32_t bucket) {
    if (bucket < SUB) return bucket / 1e3;
    int power = (int)(bucket / SUB) + 5;
    return (double)((uint64_t)(SUB + bucket % SUB) << (power - 6)) / 1e3;
}

static double percentile_us(const uint64_t *counts, double share) {
    uint64_t total = 0, seen = 0;
    for (uint32_t i = 0; i < BUCKETS; i++) total += counts[i];
    for (uint32_t i = 0; i < BUCKETS; i++) {
        seen += counts[i];
        if (total && (double)seen >= share * (double)total) return bucket_us(i);
    }
    return 0;
}

/* -- CPU time */

static void read_text(const char *path, char *text, size_t room) {
    int fd = open(path, O_RDONLY);
    ssize_t size = fd < 0 ? -1 : read(fd, text, room - 1);
    if (size <= 0) fail("%s cannot be read: is the server gone?", path);
    close(fd);
    text[size] = 0;
}

static double process_cpu_s(int pid) {
    char path[64], text[1024];
    if (!pid) return 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    read_text(path, text, sizeof text);
    unsigned long user, system;
    if (sscanf(strrchr(text, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        fail("%s cannot be understood", path);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* Everything that ran on this machine, so that the reader sees whether it was quiet. */
static double machine_cpu_s(void) {
    char text[1024];
    unsigned long user, nice, system, irq, softirq, steal;
    read_text("/proc/stat", text, sizeof text);
    if (sscanf(text, "cpu %lu %lu %lu %*u %*u %lu %lu %lu", &user, &nice, &system, &irq, &softirq, &steal) != 6)
        fail("/proc/stat cannot be understood");
    return (double)(user + nice + system + irq + softirq + steal) / (double)sysconf(_SC_CLK_TCK);
}
