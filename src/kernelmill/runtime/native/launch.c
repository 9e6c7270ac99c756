/* Launches: kernels over their tasks, on one thread or on torch's. Some run beside each other, as
   if they were one launch. */

typedef void Kernel(void **buffers, const int64_t *dims, int64_t begin, int64_t end, char *scratch);

/* A launch among those that run beside each other, whose tasks are numbered one behind the other:
   its own begin with number `first`. */
typedef struct {
  Kernel *kernel;
  void **buffers;
  int64_t *dims;
  uint64_t first, tasks;
} Prepared;

typedef struct {
  Prepared launches[LIMITS_TOGETHER];
  int64_t count; /* of these launches */
  uint64_t tasks;
  char *scratch;
  int64_t scratch_bytes; /* of one thread */
  int64_t began;         /* a super kernel, when, */
  int64_t lost;          /* and how long one of its threads did not run: the longest */
} Region;

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void **addresses_of(FrameHeader *frame) { return (void **)(frame + 1); }

/* Runs tasks, by their numbers among those of all launches. Launches that run behind another one's
   tasks come later, and have the same numbers. */
static void run_tasks(const Region *region, uint64_t begin, uint64_t end, char *scratch) {
  for (const Prepared *one = region->launches; one < region->launches + region->count; one++) {
    uint64_t first = one->first, last = first + one->tasks;
    uint64_t from = begin > first ? begin : first, to = end < last ? end : last;
    if (from < to)
      one->kernel(one->buffers, one->dims, from - first, to - first, scratch);
  }
}

#include "contention.c"

/* One thread of a super kernel, whose driver splits the tasks of its sub-kernels itself. All wait
   for whoever does not run. */
static void run_driver(void *shared) {
  Region *region = shared;
  int64_t number = omp_get_thread_num(), threads = omp_get_num_threads();
  char *scratch = region->scratch + region->scratch_bytes * number;
  int64_t ran = number ? time_of(OWN_CLOCK) : 0;
  region->launches[0].kernel(region->launches[0].buffers, NULL, number, threads, scratch);
  if (!number) return;
  ran = time_of(OWN_CLOCK) - ran;
  int64_t lost = time_of(CLOCK) - region->began - ran;
  int64_t longest = __atomic_load_n(&region->lost, __ATOMIC_RELAXED);
  while (lost > longest &&
         !__atomic_compare_exchange_n(&region->lost, &longest, lost, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
}

#include "team.c"

typedef struct {
  int64_t tasks, work; /* nanoseconds on one thread, as estimated */
} Load;

static bool is_worth_several(const Run *run, Load load) {
  return load.tasks > 1 && load.work >= run->threshold;
}

#define TEAM 16 /* so many threads are worth half the threshold each */

/* How many threads are worth while; two should have enough to do. 0 without tasks. The first thread
   tells each of them, one after the other, and all count what they have done in one word. So in a
   larger team each has more to do: n threads need n / TEAM times as much each. */
static int64_t threads_for(const Run *run, Load load) {
  if (!is_worth_several(run, load)) return load.tasks > 0;
  uint64_t busy = (uint64_t)load.work / ((uint64_t)run->threshold >> 1);
  uint64_t threads = least(run->most, least(load.tasks, busy));
  while (threads > TEAM && threads * threads > TEAM * busy) threads--;
  return threads;
}

/* Gets launch number `at` ready as the next one: its tasks, and the addresses and sizes that
   they read. */
static void prepare_one(Run *run, int64_t at) {
  const LaunchRecord *record = &run->launches[at];
  const int64_t *buffer_numbers = record->buffers, *dim_numbers = record->dims;
  void **addresses = addresses_of(run->frame);
  Region *region = &run->region;
  Prepared *one = &region->launches[region->count];
  bool behind = record->order == LAUNCH_BEHIND && region->count;
  for (int64_t b = 0; b < record->buffer_count; b++)
    one->buffers[b] = addresses[buffer_numbers[b]];
  for (int64_t d = 0; d < record->dim_count; d++) one->dims[d] = run->values[dim_numbers[d]];
  one->kernel = (Kernel *)record->kernel;
  one->first = behind ? one[-1].first : region->tasks;
  one->tasks = run->values[record->tasks];
  region->tasks = one->first + one->tasks;
  region->count++;
}

/* Gets launches number `at` up to `last` ready to run beside each other. */
static void prepare(Run *run, int64_t at, int64_t last) {
  run->region.count = run->region.tasks = 0;
  for (; at < last; at++)
    if (run->values[run->launches[at].tasks] > 0) prepare_one(run, at);
}

/* The number behind those of the launches that run beside number `at`. */
static int64_t end_of_group(const Run *run, int64_t at, int64_t last) {
  int64_t end = at + run->launches[at].span;
  if (run->launches[at].super) return end;
  while (end < last && run->launches[end].order != LAUNCH_AFTER && !run->launches[end].super &&
         end - at < LIMITS_TOGETHER)
    end++;
  return end;
}

/* What launches number `at` up to `end` have to do, beside each other. */
static Load load_of(const Run *run, int64_t at, int64_t end) {
  Load load = {0};
  for (; at < end; at += run->launches[at].span) {
    int64_t tasks = run->values[run->launches[at].tasks];
    if (tasks <= 0) continue;
    load.tasks += tasks, load.work += run->values[run->launches[at].work];
  }
  return load;
}

/* Launches number `at` up to `end`, one after the other on this thread. */
static void run_alone(Run *run, int64_t at, int64_t end) {
  for (; at < end; at += run->launches[at].span) {
    prepare(run, at, at + 1);
    /* A super kernel's driver is told of a team of one. */
    run_tasks(&run->region, 0, run->launches[at].super ? 1 : run->region.tasks,
              run->region.scratch);
  }
}

static void run_super(Run *run, int64_t at, int64_t threads) {
  prepare(run, at, at + 1);
  void **buffers = run->region.launches[0].buffers;
  memset(buffers[0], 0, threads * 64); /* a cache line for each thread */
  run->region.began = time_of(CLOCK), run->region.lost = 0;
  GOMP_parallel(run_driver, &run->region, threads, 0);
  int64_t ended = time_of(CLOCK), lost = threads * run->region.lost;
  judge(run->frame, run->most, threads, run->region.began, ended, lost);
}

/* What every thread of a region does: the first goes through the launches, others help it. */
static void run_region(void *shared) {
  Run *run = shared;
  int64_t number = omp_get_thread_num(), team = omp_get_num_threads();
  if (number) {
    help(run, number, team);
    return;
  }
  run->threshold /= 2; /* the others are here already */
  int64_t ran = run->timed ? time_of(OWN_CLOCK) : 0;
  for (int64_t at = run->first, end; at < run->last; at = end) {
    end = end_of_group(run, at, run->last);
    int64_t threads = least(threads_for(run, load_of(run, at, end)), team);
    if (threads > 1) {
      prepare(run, at, end);
      run_together(run, threads, team);
    } else if (threads == 1) {
      run_alone(run, at, end);
    }
  }
  run->done_at = time_of(CLOCK);
  if (run->timed)
    line_of(run, 0)->away = run->done_at - run->began - run->waited - (time_of(OWN_CLOCK) - ran);
  __atomic_store_n(&run->over, 1, __ATOMIC_RELEASE);
}

/* What all threads of a region have lost together that ended then: the time in which each was away,
   and in which the others waited for it. */
static int64_t lost_by(const Run *run, int64_t threads, int64_t ended) {
  int64_t at_end = ended - run->done_at, lost = threads * at_end + (threads - 1) * run->waited;
  if (!run->timed) return lost + run->waited;
  for (int64_t i = 0; i < threads; i++) lost += larger(0, line_of(run, i)->away);
  return lost;
}

/* Launches from number `at` on up to the last before `last`, or before a super kernel, that several
   threads do: one region, as opening one for each takes long. Gives the number of the next. */
static int64_t run_threaded(Run *run, int64_t at, int64_t last) {
  int64_t threads = 1, work = 0;
  run->first = run->last = at;
  for (int64_t end; at < last && !run->launches[at].super; at = end) {
    end = end_of_group(run, at, last);
    Load load = load_of(run, at, end);
    if (threads_for(run, load) > 1) run->last = end;
    threads = larger(threads, threads_for(run, load));
    work += load.work;
  }
  int64_t threshold = run->threshold;
  memset(run->frame->lines, 0, threads * 64);
  run->over = 0, run->waited = 0;
  run->timed = work >= LEAST_TIMED;
  run->began = time_of(CLOCK);
  GOMP_parallel(run_region, run, threads, 0);
  int64_t ended = time_of(CLOCK);
  run->threshold = threshold;
  judge(run->frame, run->most, threads, run->began, ended, lost_by(run, threads, ended));
  return run->last;
}

/* What each of so many callers has of so many threads: each opens a region of its own, and threads
   without a processor hold up those that have one. */
static int64_t shared(int64_t threads, int64_t callers) {
  return callers > 1 ? larger(1, threads / callers) : threads;
}

/* Launches number `first` up to `last` of the frame's table; the status that a kernel has set. */
static int64_t run(FrameHeader *frame, int64_t first, int64_t last) {
  const Table *table = frame->table;
  Run run = {.frame = frame, .launches = table->launches, .values = frame->values};
  run.threshold = table->threshold;
  int64_t allowed = run.most = limited(frame, least(get_num_threads(), frame->threads));
  void **buffers = __builtin_alloca(sizeof(void *) * table->widest_launch * LIMITS_TOGETHER);
  int64_t *dims = __builtin_alloca(sizeof(int64_t) * table->most_dims * LIMITS_TOGETHER);
  for (int64_t i = 0; i < LIMITS_TOGETHER; i++) {
    run.region.launches[i].buffers = buffers + i * table->widest_launch;
    run.region.launches[i].dims = dims + i * table->most_dims;
  }
  run.region.scratch = frame->scratch, run.region.scratch_bytes = frame->scratch_bytes;
  int64_t *callers = frame->callers;
  bool counts = false;
  for (int64_t at = first, end; at < last; at = end) {
    end = end_of_group(&run, at, last);
    Load load = load_of(&run, at, end);
    if (!counts && is_worth_several(&run, load)) {
      __atomic_add_fetch(callers, 1, __ATOMIC_RELAXED);
      counts = true;
    }
    if (counts) run.most = shared(allowed, __atomic_load_n(callers, __ATOMIC_RELAXED));
    int64_t threads = threads_for(&run, load);
    if (threads > 1 && !run.launches[at].super) end = run_threaded(&run, at, last);
    else if (threads > 1) run_super(&run, at, threads);
    else if (threads == 1) run_alone(&run, at, end);
  }
  if (counts) __atomic_sub_fetch(callers, 1, __ATOMIC_RELAXED);
  return frame->status;
}
