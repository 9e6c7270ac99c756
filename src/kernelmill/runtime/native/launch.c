/* Launches: kernels over their tasks, on one thread or on torch's. */

typedef void Kernel(void **buffers, const int64_t *dims, int64_t begin, int64_t end, char *scratch);

typedef struct {
  Kernel *kernel;
  void **buffers;
  const int64_t *dims;
  uint64_t tasks;
  char *scratch;
  int64_t scratch_bytes; /* of one thread */
} Region;

static void **addresses_of(FrameHeader *frame) { return (void **)(frame + 1); }

/* One thread's share of a parallel region: tasks are split evenly, in order, by thread number. */
static void run_tasks(void *shared) {
  const Region *region = shared;
  uint64_t number = omp_get_thread_num(), threads = omp_get_num_threads();
  uint64_t begin = region->tasks * number / threads;
  uint64_t end = region->tasks * (number + 1) / threads;
  char *scratch = region->scratch + region->scratch_bytes * number;
  region->kernel(region->buffers, region->dims, begin, end, scratch);
}

/* The same for the driver of a super kernel, which splits the tasks of its sub-kernels itself. */
static void run_driver(void *shared) {
  const Region *region = shared;
  int64_t number = omp_get_thread_num(), threads = omp_get_num_threads();
  char *scratch = region->scratch + region->scratch_bytes * number;
  region->kernel(region->buffers, NULL, number, threads, scratch);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* How many threads are worth while; two should have enough to do. */
static int64_t threads_for(const FrameHeader *frame, int64_t tasks, int64_t work) {
  int64_t threshold = ((const Table *)frame->table)->threshold;
  if (tasks == 1 || work < threshold) return 1;
  int64_t allowed = least(get_num_threads(), frame->threads);
  return least(allowed, least(tasks, (uint64_t)work / ((uint64_t)threshold >> 1)));
}

static void launch(FrameHeader *frame, const LaunchRecord *record, Region *region) {
  const int64_t *values = frame->values;
  int64_t threads = threads_for(frame, region->tasks, values[record->work]);
  if (threads <= 1) {
    int64_t end = record->super ? 1 : region->tasks; /* of a team of one */
    region->kernel(region->buffers, region->dims, 0, end, region->scratch);
  } else if (record->super) {
    memset(region->buffers[0], 0, frame->threads * 64); /* a cache line for each thread */
    GOMP_parallel(run_driver, region, threads, 0);
  } else {
    GOMP_parallel(run_tasks, region, threads, 0);
  }
}

/* Launches number `first` up to `last` of the frame's table; the status that a kernel has set. */
static int64_t run(FrameHeader *frame, int64_t first, int64_t last) {
  const Table *table = frame->table;
  const LaunchRecord *launches = table->launches;
  const int64_t *values = frame->values;
  void **addresses = addresses_of(frame);
  void **buffers = __builtin_alloca(sizeof(void *) * table->widest_launch);
  int64_t *dims = __builtin_alloca(sizeof(int64_t) * table->most_dims);
  Region region = {NULL, buffers, dims, 0, frame->scratch, frame->scratch_bytes};
  for (int64_t i = first; i < last; i += launches[i].span) {
    const LaunchRecord *record = &launches[i];
    const int64_t *buffer_numbers = record->buffers, *dim_numbers = record->dims;
    int64_t tasks = values[record->tasks];
    if (tasks <= 0) continue;
    for (int64_t b = 0; b < record->buffer_count; b++) buffers[b] = addresses[buffer_numbers[b]];
    for (int64_t d = 0; d < record->dim_count; d++) dims[d] = values[dim_numbers[d]];
    region.kernel = (Kernel *)record->kernel, region.tasks = tasks;
    launch(frame, record, &region);
  }
  return frame->status;
}
