/* What a region has lost by runtime/native/launch.c, of numbers that a test says. */

#pragma clang diagnostic ignored "-Wunused-function"
#include "foreign.h"
#include "layout.h"

#include "launch.c"

/* Nanoseconds: when the last launch was done and when the region ended, how long the first of so
   many threads waited, and how long each was away (NULL: the region is not timed). */
int64_t lost_time(int64_t threads, int64_t done_at, int64_t ended, int64_t waited,
                  const int64_t *away) {
  _Alignas(64) char lines[8 * 64] = {0};
  FrameHeader frame = {.lines = lines};
  Run run = {.frame = &frame, .done_at = done_at, .waited = waited, .timed = away};
  for (int64_t i = 0; away && i < threads; i++) line_of(&run, i)->away = away[i];
  return lost_by(&run, threads, ended);
}

/* How many of at most so many threads so many tasks are worth, which take so long together. */
int64_t threads_worth(int64_t tasks, int64_t work, int64_t most, int64_t threshold) {
  Run run = {.most = most, .threshold = threshold};
  return threads_for(&run, (Load){.tasks = tasks, .work = work});
}
