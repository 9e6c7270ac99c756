/* Launches: kernels over their tasks, on one thread or on torch's. */

typedef void Kernel(void **buffers, const int64_t *dims, int64_t begin, int64_t end, char *scratch);

typedef struct {
  Kernel *kernel;
  void **buffers;
  const int64_t *dims;
  uint64_t tasks;
  char *scratch;
  int64_t scratch_bytes; /* of one thread */
  int64_t began;         /* a super kernel, when, */
  int64_t lost;          /* and how long one of its threads did not run: the longest */
} Region;

static void **addresses_of(FrameHeader *frame) { return (void **)(frame + 1); }

#include "contention.c"

/* One thread of a super kernel, whose driver splits the tasks of its sub-kernels itself. All wait
   for whoever does not run. */
static void run_driver(void *shared) {
  Region *region = shared;
  int64_t number = omp_get_thread_num(), threads = omp_get_num_threads();
  char *scratch = region->scratch + region->scratch_bytes * number;
  int64_t ran = number ? time_of(OWN_CLOCK) : 0;
  region->kernel(region->buffers, NULL, number, threads, scratch);
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

/* How many threads are worth while; two should have enough to do. */
static int64_t threads_for(const Run *run, int64_t tasks, int64_t work) {
  int64_t threshold = ((const Table *)run->frame->table)->threshold;
  if (tasks == 1 || work < threshold) return 1;
  return least(run->most, least(tasks, (uint64_t)work / ((uint64_t)threshold >> 1)));
}

/* Gets launch number `at` ready: its tasks, and the addresses and sizes that they read. */
static void prepare(Run *run, int64_t at) {
  const LaunchRecord *record = &run->launches[at];
  const int64_t *buffer_numbers = record->buffers, *dim_numbers = record->dims;
  void **addresses = addresses_of(run->frame);
  int64_t *dims = (int64_t *)run->region.dims;
  for (int64_t b = 0; b < record->buffer_count; b++)
    run->region.buffers[b] = addresses[buffer_numbers[b]];
  for (int64_t d = 0; d < record->dim_count; d++) dims[d] = run->values[dim_numbers[d]];
  run->region.kernel = (Kernel *)record->kernel;
  run->region.tasks = run->values[record->tasks];
}

/* How many threads launch number `at` is worth; 0 without tasks. */
static int64_t threads_of(const Run *run, int64_t at) {
  const LaunchRecord *record = &run->launches[at];
  int64_t tasks = run->values[record->tasks];
  return tasks <= 0 ? 0 : threads_for(run, tasks, run->values[record->work]);
}

static void run_alone(Run *run, int64_t at) {
  Region *region = &run->region;
  prepare(run, at);
  int64_t end = run->launches[at].super ? 1 : region->tasks; /* of a team of one */
  region->kernel(region->buffers, region->dims, 0, end, region->scratch);
}

static void run_super(Run *run, int64_t at, int64_t threads) {
  prepare(run, at);
  memset(run->region.buffers[0], 0, run->frame->threads * 64); /* a cache line for each thread */
  run->region.began = time_of(CLOCK), run->region.lost = 0;
  GOMP_parallel(run_driver, &run->region, threads, 0);
  judge(run->frame, run->most, threads, run->region.began, time_of(CLOCK), run->region.lost);
}

/* What every thread of a region does: the first goes through the launches, others help it. */
static void run_region(void *shared) {
  Run *run = shared;
  int64_t number = omp_get_thread_num(), team = omp_get_num_threads();
  if (number) {
    help(run, number, team);
    return;
  }
  for (int64_t at = run->first; at < run->last; at += run->launches[at].span) {
    int64_t threads = least(threads_of(run, at), team);
    if (threads > 1) {
      prepare(run, at);
      run_together(run, threads, team);
    } else if (threads == 1) {
      run_alone(run, at);
    }
  }
  run->done_at = time_of(CLOCK);
  __atomic_store_n(&run->over, 1, __ATOMIC_RELEASE);
}

/* Launches from number `at` on up to the last before `last`, or before a super kernel, that several
   threads do: one region, as opening one for each takes long. Gives the number of the next. */
static int64_t run_threaded(Run *run, int64_t at, int64_t last) {
  int64_t most = 1;
  run->first = run->last = at;
  for (; at < last && !run->launches[at].super; at += run->launches[at].span) {
    int64_t threads = threads_of(run, at);
    if (threads > 1) run->last = at + run->launches[at].span;
    if (threads > most) most = threads;
  }
  memset(run->frame->lines, 0, run->frame->threads * 64);
  run->over = 0, run->lost = 0;
  int64_t began = time_of(CLOCK);
  GOMP_parallel(run_region, run, most, 0);
  int64_t ended = time_of(CLOCK);
  judge(run->frame, run->most, most, began, ended, run->lost + ended - run->done_at);
  return run->last;
}

/* Launches number `first` up to `last` of the frame's table; the status that a kernel has set. */
static int64_t run(FrameHeader *frame, int64_t first, int64_t last) {
  const Table *table = frame->table;
  Run run = {.frame = frame, .launches = table->launches, .values = frame->values};
  run.most = limited(frame, least(get_num_threads(), frame->threads));
  run.region.buffers = __builtin_alloca(sizeof(void *) * table->widest_launch);
  run.region.dims = __builtin_alloca(sizeof(int64_t) * table->most_dims);
  run.region.scratch = frame->scratch, run.region.scratch_bytes = frame->scratch_bytes;
  for (int64_t at = first; at < last;) {
    int64_t threads = threads_of(&run, at), span = run.launches[at].span;
    if (threads > 1 && !run.launches[at].super) {
      at = run_threaded(&run, at, last);
      continue;
    }
    if (threads > 1) run_super(&run, at, threads);
    else if (threads == 1) run_alone(&run, at);
    at += span;
  }
  return frame->status;
}
