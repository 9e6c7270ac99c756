/* The tasks of a launch among the threads of a region.

   Each thread has a range of tasks in a cache line of its own, one word: the first in the low half,
   the end in the high one. Of its own range a thread claims the first half at a time; when that is
   empty it claims the last half of what another has left, so that nobody waits for tasks that a
   thread holds which the system does not let run. Which thread runs a task changes no result.

   All is in that word: who has claimed tasks with it may read what the launch says, for there is no
   next launch before these tasks are counted as done. It does no harm that a word may have become
   the same again meanwhile, in a later launch. The first thread alone puts ranges into the words,
   when all of them are empty; everybody else only makes them shorter. */

typedef struct {
  uint64_t range;
  uint64_t works; /* whether the thread holds tasks */
  int32_t clock;  /* tells how long it has run */
  int64_t ran;    /* so long, when somebody last looked */
  int64_t away;   /* nanoseconds of a timed region in which it neither ran nor meant to wait */
} Line;

typedef struct {
  FrameHeader *frame;
  const LaunchRecord *launches;
  const int64_t *values;
  int64_t first, last; /* launches of the region */
  Region region;       /* of the launch under way */
  int64_t members;     /* threads that it is worth */
  int64_t most;        /* threads of a launch */
  int64_t threshold;   /* the least work in nanoseconds that is worth several of them */
  bool timed;          /* whether each thread says how long it was away */
  int64_t began;       /* the region, when */
  int64_t waited;      /* nanoseconds of the first thread for threads that did not run */
  int64_t done_at;     /* when the last launch was done */
  uint64_t over;       /* there are no more launches */
  _Alignas(64) uint64_t done; /* tasks of the launch */
} Run;

#define LOOKS 1000 /* so often a thread looks before it lets others have its processor, */
#define YIELDS 200 /* and so often it does that before it sleeps a while */
#define SLEEP_MICROSECONDS 50
#define LONGEST_SLEEP 400 /* after some sleeps, each twice as long as the one before */
#define SLEEP_TAKES(microseconds) (2000 * (microseconds)) /* nanoseconds at most */

static uint64_t range_of(uint64_t first, uint64_t end) { return end << 32 | first; }
static uint64_t first_of(uint64_t range) { return range & 0xffffffff; }
static uint64_t end_of(uint64_t range) { return range >> 32; }
static uint64_t tasks_in(uint64_t range) { return end_of(range) - first_of(range); }

static Line *line_of(const Run *run, int64_t thread) {
  return (Line *)((char *)run->frame->lines + 64 * thread);
}

static bool exchanged(uint64_t *range, uint64_t *seen, uint64_t now) {
  return __atomic_compare_exchange_n(range, seen, now, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Tasks from the front of a thread's own range; an empty range when there are none. */
static uint64_t claimed(uint64_t *own) {
  uint64_t range = __atomic_load_n(own, __ATOMIC_ACQUIRE);
  while (tasks_in(range)) {
    uint64_t middle = first_of(range) + (tasks_in(range) + 1) / 2;
    if (exchanged(own, &range, range_of(middle, end_of(range))))
      return range_of(first_of(range), middle);
  }
  return 0;
}

/* Tasks from the back of what another thread has left: half of them. */
static uint64_t stolen(const Run *run, int64_t thread, int64_t team) {
  bool member = thread < __atomic_load_n(&run->members, __ATOMIC_RELAXED);
  for (int64_t i = 1; member && i < team; i++) {
    uint64_t *other = &line_of(run, (thread + i) % team)->range;
    uint64_t range = __atomic_load_n(other, __ATOMIC_ACQUIRE);
    while (tasks_in(range) && thread < __atomic_load_n(&run->members, __ATOMIC_RELAXED)) {
      uint64_t middle = first_of(range) + tasks_in(range) / 2;
      if (exchanged(other, &range, range_of(first_of(range), middle)))
        return range_of(middle, end_of(range));
    }
  }
  return 0;
}

/* Runs tasks as long as there are any to be had; whether there were. All threads count in one word
   what is done, so each does that once for its own range, and not at every claim. */
static bool take_part(Run *run, int64_t thread, int64_t team) {
  Line *own = line_of(run, thread);
  bool any = false;
  for (uint64_t ran = 0;; any = true) {
    uint64_t range = claimed(&own->range);
    if (!range) {
      if (ran) __atomic_fetch_add(&run->done, ran, __ATOMIC_RELEASE);
      ran = 0;
      range = stolen(run, thread, team);
    }
    if (!range) return any;
    __atomic_store_n(&own->works, 1, __ATOMIC_RELEASE);
    const Region *region = &run->region;
    char *scratch = region->scratch + region->scratch_bytes * thread;
    run_tasks(region, first_of(range), end_of(range), scratch);
    __atomic_store_n(&own->works, 0, __ATOMIC_RELAXED);
    ran += tasks_in(range);
  }
}

/* Whether a thread that holds tasks has not run for most of the last nanoseconds. */
static bool holds_up(const Run *run, int64_t team, int64_t nanoseconds) {
  bool found = false;
  for (int64_t i = 1; i < team; i++) {
    Line *line = line_of(run, i);
    if (!__atomic_load_n(&line->works, __ATOMIC_ACQUIRE)) continue;
    int64_t ran = time_of(line->clock);
    found |= 2 * (ran - line->ran) < nanoseconds;
    line->ran = ran;
  }
  return found;
}

static bool is_done(const Run *run) {
  return __atomic_load_n(&run->done, __ATOMIC_ACQUIRE) >= run->region.tasks;
}

/* Waits for tasks that others hold. Where one of these does not run, the first thread sleeps: to a
   processor without work the system moves those that wait for another. */
static void wait_for_others(Run *run, int64_t team) {
  int64_t before = time_of(CLOCK);
  holds_up(run, team, 0);
  for (bool held = false; !is_done(run);) {
    if (held) usleep(SLEEP_MICROSECONDS);
    for (int64_t i = 0; !held && i < YIELDS && !is_done(run); i++) sched_yield();
    int64_t now = time_of(CLOCK);
    held = holds_up(run, team, now - before);
    if (held) run->waited += now - before;
    before = now;
  }
}

/* The launches that are prepared, as the first of several threads. */
static void run_together(Run *run, int64_t threads, int64_t team) {
  uint64_t tasks = run->region.tasks;
  if (tasks > 0xffffffff) { /* more than a word has room for */
    run_tasks(&run->region, 0, tasks, run->region.scratch);
    return;
  }
  __atomic_store_n(&run->done, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&run->members, threads, __ATOMIC_RELAXED);
  for (int64_t i = threads; i-- > 0;) {
    uint64_t range = range_of(tasks * i / threads, tasks * (i + 1) / threads);
    __atomic_store_n(&line_of(run, i)->range, range, __ATOMIC_RELEASE);
  }
  for (int64_t looks = 0; !is_done(run);)
    if (take_part(run, 0, team)) looks = 0;
    else if (++looks > LOOKS + YIELDS) wait_for_others(run, team);
    else if (looks > LOOKS) sched_yield();
}

/* What the other threads do until there are no more launches. */
static void help(Run *run, int64_t thread, int64_t team) {
  Line *own = line_of(run, thread);
  pthread_getcpuclockid(pthread_self(), &own->clock);
  int64_t ran = run->timed ? time_of(OWN_CLOCK) : 0, slept = 0;
  for (int64_t looks = 0, sleep = 0; !__atomic_load_n(&run->over, __ATOMIC_ACQUIRE);) {
    if (take_part(run, thread, team)) looks = sleep = 0;
    else if (++looks > LOOKS + YIELDS) {
      sleep = sleep ? least(2 * sleep, LONGEST_SLEEP) : SLEEP_MICROSECONDS;
      slept += SLEEP_TAKES(sleep);
      usleep(sleep);
    } else if (looks > LOOKS) sched_yield();
  }
  if (run->timed) own->away = run->done_at - run->began - slept - (time_of(OWN_CLOCK) - ran);
}
