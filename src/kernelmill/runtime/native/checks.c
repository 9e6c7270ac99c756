/* What a call checks besides its own tensors: pages, parameters, and what is watched outside of
   the arguments. All of it lies in memory that the call before has driven out of the caches, and a
   large model has a millisecond of it, so it is tasks of a region, like those of a launch.

   Python's lock is held by whoever opened the region, so that no object changes meanwhile. */

/* So much is one task. */
#define PAGES_A_TASK 4
#define PARAMETERS_A_TASK 16
#define RECORDS_A_TASK 512

/* Nanoseconds that one of them takes at least: what it reads is in the caches then. */
#define SCAN 500
#define COMPARE 150
#define LOOK 3

/* The least work in nanoseconds that is worth a second thread, which may have to be woken. */
#define WORTH_HELP 32000

#define CHECK_MOVED 1 /* something that is watched is not as it was */

typedef struct {
  FrameHeader *frame;
  const BindingTable *binding; /* null for none */
  Object *arguments;
  const WatchRecord *records;
  int64_t record_count;
  uint64_t scans, compares, tasks; /* numbers of tasks: scans come first, then parameters */
  uint64_t written;                /* whether a page was written */
  uint64_t moved;                  /* whether something watched is not as it was */
  int64_t changed;                 /* the first parameter that is not as it was */
  int64_t done_at;                 /* when the first thread found no more tasks */
  _Alignas(64) uint64_t next;      /* task that nobody has begun */
} Check;

static uint64_t parts(int64_t count, int64_t size) { return (count + size - 1) / size; }

/* Whether parameters up to `last` are as they were; fills in their addresses. */
static void compare_parameters(Check *check, int64_t at, int64_t last) {
  const BindingTable *binding = check->binding;
  const ParameterRecord *parameters = binding->parameters;
  void **addresses = addresses_of(check->frame);
  for (; at < last; at++) {
    fetch_fields(&parameters[least(at + 6, binding->parameter_count - 1)]);
    fetch_contents(&parameters[least(at + 3, binding->parameter_count - 1)]);
    if (check_parameter(&parameters[at], check->arguments, binding->impl_offset)) {
      addresses[parameters[at].buffer] = parameters[at].address;
      continue;
    }
    int64_t first = __atomic_load_n(&check->changed, __ATOMIC_RELAXED);
    while (at < first && !__atomic_compare_exchange_n(&check->changed, &first, at, false,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return;
  }
}

static void run_check(Check *check, uint64_t task) {
  const BindingTable *binding = check->binding;
  if (task < check->scans) {
    int64_t at = task * PAGES_A_TASK, last = least(at + PAGES_A_TASK, binding->pages_count);
    if (!unwritten(binding, at, last)) __atomic_store_n(&check->written, 1, __ATOMIC_RELAXED);
  } else if ((task -= check->scans) < check->compares) {
    int64_t at = task * PARAMETERS_A_TASK;
    compare_parameters(check, at, least(at + PARAMETERS_A_TASK, binding->parameter_count));
  } else {
    int64_t at = (task - check->compares) * RECORDS_A_TASK;
    if (!guards_hold(check->records + at, least(RECORDS_A_TASK, check->record_count - at)))
      __atomic_store_n(&check->moved, 1, __ATOMIC_RELAXED);
  }
}

/* What every thread of a region does: tasks as long as there are any. */
static void run_checks(void *shared) {
  Check *check = shared;
  for (;;) {
    uint64_t task = __atomic_fetch_add(&check->next, 1, __ATOMIC_RELAXED);
    if (task >= check->tasks) break;
    run_check(check, task);
  }
  if (!omp_get_thread_num()) check->done_at = time_of(CLOCK);
}

/* All tasks, on as many threads as they are worth. */
static void run_all_checks(Check *check) {
  FrameHeader *frame = check->frame;
  const BindingTable *binding = check->binding;
  int64_t work = LOOK * check->record_count;
  if (check->scans) work += SCAN * binding->pages_count;
  if (binding) work += COMPARE * binding->parameter_count;
  int64_t most = 1;
  if (work >= WORTH_HELP) {
    int64_t others = __atomic_load_n((int64_t *)frame->callers, __ATOMIC_RELAXED);
    most = shared(limited(frame, least(get_num_threads(), frame->threads)), others + 1);
  }
  int64_t threads = least(most, 2 * work / WORTH_HELP);
  if (threads <= 1) {
    for (uint64_t task = 0; task < check->tasks; task++) run_check(check, task);
    return;
  }
  int64_t began = time_of(CLOCK);
  GOMP_parallel(run_checks, check, threads, 0);
  int64_t ended = time_of(CLOCK);
  judge(frame, most, threads, began, ended, threads * (ended - check->done_at));
}

/* Whether all is as it was that these records watch, and that a binding has of parameters: gives 0,
   CHECK_MOVED, or -1 - the number of the parameter that is otherwise. Fills in the addresses of
   parameters and packed buffers. */
static int64_t check_bound(FrameHeader *frame, BindingTable *binding, Object *arguments,
                           const WatchRecord *records, int64_t record_count) {
  int64_t faults = binding && binding->pages_count ? faults_of(binding) : 0;
  Check check = {.frame = frame,
                 .binding = binding,
                 .arguments = arguments,
                 .records = records,
                 .record_count = record_count,
                 .changed = INT64_MAX};
  if (binding) {
    if (!faults || faults != __atomic_load_n(&binding->unwritten_at, __ATOMIC_ACQUIRE))
      check.scans = parts(binding->pages_count, PAGES_A_TASK);
    check.compares = parts(binding->parameter_count, PARAMETERS_A_TASK);
  }
  check.tasks = check.scans + check.compares + parts(record_count, RECORDS_A_TASK);
  int64_t takes = check.scans ? takes_of(binding) : 0;
  run_all_checks(&check);
  if (check.moved) return CHECK_MOVED;
  if (!binding) return 0;
  /* What somebody has taken meanwhile is neither found, nor in the parameters yet. */
  if (check.written || (check.scans && (takes & 1 || takes_of(binding) != takes))) return ~0;
  if (check.scans) __atomic_store_n(&binding->unwritten_at, faults, __ATOMIC_RELEASE);
  if (check.changed < INT64_MAX) return ~check.changed;
  const PackedRecord *packed = binding->packed;
  for (int64_t i = 0; i < binding->packed_count; i++)
    addresses_of(frame)[packed[i].buffer] = packed[i].address;
  return 0;
}

/* The same, and the addresses of arena buffers, for a call whose tensors are checked. Gives 0,
   CHECK_MOVED, or -1 - the number of the argument that is otherwise. */
static int64_t validate_bound(FrameHeader *frame, BindingTable *binding, Object *arguments,
                              const WatchRecord *records, int64_t record_count) {
  const Table *table = frame->table;
  int64_t code = check_bound(frame, binding, arguments, records, record_count);
  if (code) return code < 0 ? code - table->input_count : code;
  const ArenaRecord *arena = table->arena;
  const int64_t *values = frame->values;
  for (int64_t i = 0; i < table->arena_count; i++)
    addresses_of(frame)[arena[i].buffer] = (char *)frame->arena + values[arena[i].offset];
  frame->calls++;
  frame->status = 0;
  return 0;
}
