/* The rules of runtime/native/contention.c, at times that a test says. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "layout.h"

#define OPEN_TO_READ 0

struct Time {
  int64_t seconds, nanoseconds;
};

static int64_t now, ran; /* ran: by all threads of the process */
static const char *processors; /* what /proc/stat has; NULL: it is not there */

static int clock_gettime(int32_t clock, struct Time *time) {
  int64_t told = clock == 2 ? ran : now;
  *time = (struct Time){told / 1000000000, told % 1000000000};
  return 0;
}
static int open(const char *path, int flags) { return processors ? 3 : -1; }
static int64_t read(int file, void *into, size_t bytes) {
  strncpy(into, processors, bytes);
  return strlen(into);
}
static int close(int file) { return 0; }

#include "contention.c"

int64_t threads_at(FrameHeader *frame, int64_t time, int64_t own, const char *text,
                   int64_t threads) {
  now = time, ran = own, processors = text;
  return limited(frame, threads);
}

void region(FrameHeader *frame, int64_t began, int64_t ended, int64_t own, int64_t lost,
            const char *text, int64_t threads) {
  now = ended, ran = own, processors = text;
  judge(frame, threads, threads, began, ended, lost);
}
