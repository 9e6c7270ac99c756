/* Fewer threads for a while, where some of them are held up.

   A thread whose processor somebody else keeps busy runs for a time slice of some milliseconds, and
   waits for as long. Claims keep a launch from waiting for tasks that it has not begun, but not for
   those it has, and a region ends when all of its threads have. So time of threads is lost: of each
   that does not run (it is away), and of those that wait for it. Spread over all n threads of a
   region, that is what it would have been sooner by with all of them; with one thread less it
   would have been sooner if that is more than an n-th of what it took, that is, if all threads
   together have lost more than it took. Then calls of this frame go on with one less. It is tried
   again when there are processors for it, after pauses that grow as long as trials fail.

   A thread that is held up now and then is not meant: what is lost has to come faster than time
   without a loss makes up for (a cumulative sum: E. S. Page, "Continuous inspection schemes",
   1954).

   Asking the system how long a thread has run takes a microsecond, so only regions with much work
   are timed; of others the time is counted in which the first thread waits. */

#define CLOCK 1         /* CLOCK_MONOTONIC */
#define PROCESS_CLOCK 2 /* CLOCK_PROCESS_CPUTIME_ID: how long all threads of the process have run */
#define OWN_CLOCK 3     /* CLOCK_THREAD_CPUTIME_ID: how long this thread has run */

#define MILLISECONDS INT64_C(1000000)
#define LEAST_TIMED MILLISECONDS /* the work of a region that is timed */
#define LEAST_LOST (MILLISECONDS / 2) /* by each thread of a region; less is no slice */
#define MOST_LOST (12 * MILLISECONDS) /* more than time without a loss has made up for */
#define LOST_AT_TRIAL (MOST_LOST / 2)
#define GRACE (50 * MILLISECONDS) /* the system may take so long to spread threads that it wakes */
#define FIRST_PAUSE (250 * MILLISECONDS)
#define LONGEST_PAUSE (4000 * MILLISECONDS)
#define PAUSES 20 /* after so many, more is tried in any case */
#define TICK (10 * MILLISECONDS)            /* the unit of /proc/stat: proc(5), sysconf(3) */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Nanoseconds by a clock. */
static int64_t time_of(int32_t clock) {
  struct Time time = {0};
  clock_gettime(clock, &time);
  return time.seconds * 1000000000 + time.nanoseconds;
}

/* The processors' time, in ticks since the system began, in which they were idle, or ran what has a
   low priority (nice): the sum of the second, fourth and fifth number of /proc/stat. -1 where that
   is not told. */
static int64_t free_ticks(void) {
  char text[256] = {0};
  int file = open("/proc/stat", OPEN_TO_READ);
  if (file < 0) return -1;
  bool is_read = read(file, text, sizeof text - 1) > 0;
  close(file);
  int64_t numbers[5] = {0}, count = 0;
  for (const char *at = text; is_read && *at && count < 5; at++) {
    if (*at < '0' || *at > '9') continue;
    for (; *at >= '0' && *at <= '9'; at++) numbers[count] = 10 * numbers[count] + *at - '0';
    count++;
    if (!*at) break;
  }
  return count < 5 ? -1 : numbers[1] + numbers[3] + numbers[4];
}

/* Whether this process could have had the processors of the frame's threads and half of another
   one since somebody last asked: what was free, and what it had, for this or for other programs. */
static bool is_room(FrameHeader *frame, int64_t now) {
  int64_t ticks = free_ticks(), free = (ticks - frame->free_ticks) * TICK;
  int64_t ran = time_of(PROCESS_CLOCK), own = ran - frame->ran;
  bool found = ticks < 0 || 2 * (free + own) >= (2 * frame->limit + 1) * (now - frame->asked_at);
  frame->ran = ran;
  frame->free_ticks = ticks;
  frame->asked_at = now;
  return found;
}

/* How many of so many threads a call should have now. */
static int64_t limited(FrameHeader *frame, int64_t threads) {
  if (!frame->limit || frame->limit >= threads) return threads;
  int64_t now = time_of(CLOCK);
  if (now < frame->limited_until) return frame->limit;
  if (!is_room(frame, now) && now < frame->try_at) {
    frame->limited_until = now + FIRST_PAUSE;
    return frame->limit;
  }
  frame->limit *= 2;
  frame->limited_until = now + frame->pause;
  frame->lost = LOST_AT_TRIAL;
  return least(threads, frame->limit);
}

/* Lets calls have one thread less than this one, for longer than the last time if that is not long
   ago. */
static void limit(FrameHeader *frame, int64_t threads) {
  int64_t now = time_of(CLOCK);
  bool again = now < frame->limited_until;
  frame->pause = again ? least(2 * frame->pause, LONGEST_PAUSE) : FIRST_PAUSE;
  frame->limited_until = now + frame->pause;
  frame->try_at = now + PAUSES * frame->pause;
  frame->limit = threads - 1;
  frame->lost = 0;
  frame->held_up++;
  is_room(frame, now);
}

/* A region of so many threads has ended, which together have lost so many nanoseconds. Calls may
   have `most` threads. */
static void judge(FrameHeader *frame, int64_t most, int64_t threads, int64_t began, int64_t ended,
                  int64_t lost) {
  if (ended - frame->asked_at < GRACE) return;
  frame->lost -= ended - began;
  if (lost >= threads * LEAST_LOST) frame->lost += lost;
  if (frame->lost > MOST_LOST) limit(frame, most);
  if (frame->lost < 0) frame->lost = 0;
}
