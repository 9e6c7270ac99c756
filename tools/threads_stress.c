/* Checks and launches of the native entry by several callers at a time, with threads that come late
   and go away in the middle, changing numbers of threads, and forks: results are compared with
   those of one thread, and checks have to tell what was spoiled. `tools/torture_threads.py` makes it with sanitizers.

   threads_stress CALLERS CALLS SEED

   Prints how many calls were made, forks, and threads held up; ends with 1 where a result differs.
   What stands here for OpenMP starts its threads anew for each region. */

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define clock_gettime entry_clock_gettime /* which foreign.h declares with a structure of its own */
#define ioctl entry_ioctl
#include "foreign.h"
#include "layout.h"

#ifndef PAGEMAP_SCAN /* the headers of a Linux before 6.7 */
struct page_region {
  uint64_t start, end, categories;
};
struct pm_scan_arg {
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
enum { PAGEMAP_SCAN, PM_SCAN_CHECK_WPASYNC, PAGE_IS_WRITTEN };
#endif

#define MOST_THREADS 4
#define TASKS 400
#define LAUNCHES 12
#define SUPER 7 /* the number of the launch that is a super kernel */
#define CALLS_PER_FORK 16
#define PARAMETERS 300
#define PAGES 50
#define RECORDS 4000

static _Thread_local int thread_number, team_size = 1, threads_set = 1;
static _Thread_local uint64_t state;

static uint64_t chance(void) { /* xorshift: G. Marsaglia, "Xorshift RNGs", 2003 */
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}

/* ---- what torch brings ------------------------------------------------------------------------ */

int get_num_threads(void) { return threads_set; }
int omp_get_thread_num(void) { return thread_number; }
int omp_get_num_threads(void) { return team_size; }

typedef struct {
  void (*body)(void *);
  void *shared;
  int number, team;
  uint64_t state;
} Member;

static void *member(void *given) {
  Member *own = given;
  thread_number = own->number, team_size = own->team, state = own->state;
  if (chance() % 4 == 0) usleep(chance() % 500);
  own->body(own->shared);
  return NULL;
}

void GOMP_parallel(void (*body)(void *), void *shared, unsigned threads, unsigned flags) {
  pthread_t started[MOST_THREADS];
  Member members[MOST_THREADS];
  int team = chance() % 8 ? (int)threads : 1; /* fewer than were asked for, as in a region */
  for (int i = 1; i < team; i++) {
    members[i] = (Member){body, shared, i, team, chance() | 1};
    if (pthread_create(&started[i], NULL, member, &members[i])) abort();
  }
  team_size = team;
  body(shared);
  team_size = 1;
  for (int i = 1; i < team; i++) pthread_join(started[i], NULL);
}

/* A tensor that is a parameter: its TensorImpl, and its object. */
typedef struct {
  void *data;
  int64_t sizes[1], strides[1], version;
} Impl;

typedef struct {
  Object head;
  Impl *impl;
} Tensor;

Object *PyTuple_GetItem(Object *tuple, int64_t number) {
  return &((Tensor *)tuple)[number].head;
}

/* Dicts are words here. */
Object *_PyDict_GetItem_KnownHash(Object *dict, Object *key, int64_t hash) {
  return (Object *)*(int64_t *)dict;
}

static const Impl *fields_of(Handle tensor) { return *tensor; }

int aoti_torch_get_data_ptr(Handle tensor, void **found) {
  *found = fields_of(tensor)->data;
  return 0;
}
int aoti_torch_get_dim(Handle tensor, int64_t *found) {
  *found = 1;
  return 0;
}
int aoti_torch_get_dtype(Handle tensor, int32_t *found) {
  *found = 6;
  return 0;
}
int aoti_torch_get_sizes(Handle tensor, int64_t **found) {
  *found = (int64_t *)fields_of(tensor)->sizes;
  return 0;
}
int aoti_torch_get_strides(Handle tensor, int64_t **found) {
  *found = (int64_t *)fields_of(tensor)->strides;
  return 0;
}
int64_t tensor_version(Handle tensor) { return fields_of(tensor)->version; }
int is_inference(Handle tensor) { return 0; }
int is_negated(Handle tensor) { return 0; }

/* The system says that a page was written whose number is where it would say which. */
int entry_ioctl(int file, unsigned long request, ...) {
  va_list given;
  va_start(given, request);
  struct pm_scan_arg *scan = va_arg(given, struct pm_scan_arg *);
  va_end(given);
  return *(int64_t *)scan->start != 0;
}

#include "launch.c"
#include "arguments.c"
#include "weights.c"
#include "guards.c"
#include "checks.c"

#undef clock_gettime
#undef ioctl
int entry_clock_gettime(int32_t clock, struct Time *time) {
  struct timespec found;
  int failed = clock_gettime(clock, &found);
  *time = (struct Time){found.tv_sec, found.tv_nsec};
  return failed;
}

/* ---- programs --------------------------------------------------------------------------------- */

/* out[i] = 3 * in[TASKS - 1 - i] + i + dim: of tasks of other threads. */
static void turn(void **buffers, const int64_t *dims, int64_t begin, int64_t end, char *scratch) {
  const uint64_t *in = buffers[0];
  uint64_t *out = buffers[1], *own = (uint64_t *)scratch;
  for (int64_t task = begin; task < end; task++) {
    *own = 3 * in[TASKS - 1 - task];
    if (thread_number && chance() % 512 == 0) usleep(chance() % 32 ? 200 : 20000);
    out[task] = *own + (uint64_t)task + (uint64_t)dims[0];
  }
}

/* out[i] = 3 * in[i] + i + dim: of the same task, which may be of the launch before. */
static void follow(void **buffers, const int64_t *dims, int64_t begin, int64_t end, char *scratch) {
  const uint64_t *in = buffers[0];
  uint64_t *out = buffers[1];
  for (int64_t task = begin; task < end; task++)
    out[task] = 3 * in[task] + (uint64_t)task + (uint64_t)dims[0];
}

/* The driver of a super kernel: each thread has a fixed share. */
static void driver(void **buffers, const int64_t *dims, int64_t number, int64_t threads, char *at) {
  int64_t one = 1;
  turn(buffers + 1, &one, TASKS * number / threads, TASKS * (number + 1) / threads, at);
}

enum { DIM, ALL_TASKS, NO_TASKS, LITTLE, MUCH, VALUES };

typedef struct {
  FrameHeader header;
  void *addresses[LAUNCHES + 1 + PARAMETERS];
} Frame;

/* Some launches run behind the one before, and some beside it: they read what that reads. */
static const int64_t orders[LAUNCHES] = {
    [1] = LAUNCH_BEHIND, [4] = LAUNCH_BESIDE, [5] = LAUNCH_BEHIND, [10] = LAUNCH_BESIDE};

static int64_t read_by(int64_t launch) {
  return launch - (orders[launch] == LAUNCH_BESIDE);
}

static LaunchRecord launches[LAUNCHES];
static int64_t numbers[LAUNCHES][3], dim_numbers[1] = {DIM};
static int64_t values[VALUES] = {
    [DIM] = 1, [ALL_TASKS] = TASKS, [NO_TASKS] = 0, [LITTLE] = 10, [MUCH] = 10000000};
static Table table = {.launch_count = LAUNCHES, .launches = launches, .widest_launch = 3,
                      .most_dims = 1, .threshold = 10000};

static void make_program(void) {
  for (int64_t i = 0; i < LAUNCHES; i++) {
    bool super = i == SUPER;
    int64_t *own = numbers[i], at = 0;
    if (super) own[at++] = -2; /* the lines */
    own[at++] = read_by(i), own[at++] = i + 1;
    launches[i] = (LaunchRecord){
        .kernel = super                        ? (void *)driver
                  : orders[i] == LAUNCH_BEHIND ? (void *)follow
                                               : (void *)turn,
        .buffer_count = at, .buffers = own, .order = orders[i],
        .dim_count = 1, .dims = dim_numbers, .tasks = ALL_TASKS,
        .work = i % 5 == 3 ? LITTLE : MUCH, .span = 1, .super = super};
  }
}

static int64_t all_callers; /* calls under way that share threads */

static Frame *new_frame(void) {
  Frame *frame = calloc(1, sizeof(Frame));
  frame->header = (FrameHeader){
      .table = &table, .values = values, .threads = MOST_THREADS, .scratch_bytes = 64,
      .scratch = aligned_alloc(64, 64 * MOST_THREADS),
      .lines = aligned_alloc(64, 64 * MOST_THREADS),
      .callers = &all_callers};
  for (int64_t i = 0; i <= LAUNCHES; i++) frame->addresses[i] = malloc(8 * TASKS);
  return frame;
}

static void free_frame(Frame *frame) {
  for (int64_t i = 0; i <= LAUNCHES; i++) free(frame->addresses[i]);
  free(frame->header.lines), free(frame->header.scratch), free(frame);
}

static bool call(Frame *frame) {
  uint64_t expected[LAUNCHES + 1][TASKS], *input = frame->addresses[0];
  bool right = true;
  for (int64_t i = 0; i < TASKS; i++) expected[0][i] = input[i] = chance();
  run(&frame->header, 0, LAUNCHES);
  for (int64_t n = 0; n < LAUNCHES; n++) {
    const uint64_t *in = expected[read_by(n)];
    bool turned = orders[n] != LAUNCH_BEHIND;
    for (uint64_t i = 0; i < TASKS; i++)
      expected[n + 1][i] = 3 * in[turned ? TASKS - 1 - i : i] + i + 1;
    right &= !memcmp(expected[n + 1], frame->addresses[n + 1], sizeof expected[0]);
  }
  return right;
}

/* ---- checks ----------------------------------------------------------------------------------- */

typedef struct {
  Tensor tensors[PARAMETERS];
  Impl impls[PARAMETERS];
  int64_t contents[PARAMETERS], copies[PARAMETERS], layouts[PARAMETERS][2];
  int64_t written[PAGES], watched[RECORDS];
  ParameterRecord parameters[PARAMETERS];
  PagesRecord pages[PAGES];
  WatchRecord records[RECORDS];
  WatchState watch;
  BindingTable binding;
} Model;

static Model *new_model(void) {
  Model *made = calloc(1, sizeof(Model));
  for (int64_t i = 0; i < PARAMETERS; i++) {
    Impl *impl = &made->impls[i];
    int64_t *layout = made->layouts[i];
    made->contents[i] = made->copies[i] = i;
    layout[0] = 2, layout[1] = 1;
    *impl = (Impl){.data = &made->contents[i], .sizes = {2}, .strides = {1}, .version = 7};
    made->tensors[i].impl = impl;
    made->parameters[i] = (ParameterRecord){
        .object = &made->tensors[i], .argument = i, .impl = impl, .data = impl->data,
        .version = 7, .versioned = 1, .rank = 1, .dtype = 6, .layout = layout,
        .buffer = LAUNCHES + 1 + i, .address = impl->data,
        .pieces = 1, .piece_bytes = 8, .pitch = 8, .contents = &made->copies[i]};
  }
  for (int64_t i = 0; i < PAGES; i++) made->pages[i].first = (int64_t)&made->written[i];
  for (int64_t i = 0; i < RECORDS; i++)
    made->records[i] = (WatchRecord){.kind = i % 2 ? WATCH_WORD : WATCH_DICT_ITEM,
                                       .owner = &made->watched[i]};
  made->binding = (BindingTable){
      .parameter_count = PARAMETERS, .parameters = made->parameters,
      .impl_offset = offsetof(Tensor, impl), .watch = &made->watch,
      .pages_count = PAGES, .pages = made->pages};
  return made;
}

/* Whether a check finds what is spoiled, if anything is: a thing or two of one kind. */
static bool check(Frame *frame, Model *model) {
  int64_t kind = chance() % 6, one = chance() % PARAMETERS, other = chance() % PARAMETERS, code = 0;
  if (kind == 0) model->impls[one].version++, model->impls[other].strides[0]++;
  if (kind == 1) model->contents[one] = model->contents[other] = -1;
  if (kind == 2) model->written[one % PAGES] = 1;
  if (kind == 3) model->watched[one] = model->watched[RECORDS - 1 - other] = 1;
  if (kind == 4) model->watch.takes++;
  if (kind < 2) code = ~least(one, other);
  if (kind == 2 || (kind == 4 && model->watch.takes & 1)) code = ~0;
  if (kind == 3) code = CHECK_MOVED;
  memset(frame->addresses + LAUNCHES + 1, 0, sizeof(void *) * PARAMETERS);
  bool right = code == check_bound(&frame->header, &model->binding, &model->tensors[0].head,
                                   model->records, RECORDS);
  for (int64_t i = 0; !code && i < PARAMETERS; i++)
    right &= frame->addresses[LAUNCHES + 1 + i] == &model->contents[i];
  if (kind == 0) model->impls[one].version--, model->impls[other].strides[0]--;
  if (kind == 1) model->contents[one] = one, model->contents[other] = other;
  if (kind == 2) model->written[one % PAGES] = 0;
  if (kind == 3) model->watched[one] = model->watched[RECORDS - 1 - other] = 0;
  if (kind == 4 && model->watch.takes & 1) model->watch.takes++;
  return right;
}

/* Whether a child of this process, with one thread, gets the same. */
static bool call_in_child(Frame *frame, Model *model) {
  int status;
  pid_t child = fork();
  if (!child) {
    threads_set = 1;
    _exit(check(frame, model) && call(frame) && call(new_frame()) ? 0 : 1);
  }
  return waitpid(child, &status, 0) == child && !status;
}

/* ---- callers ---------------------------------------------------------------------------------- */

typedef struct {
  int64_t calls, wrong, forks, held_up;
  uint64_t seed;
} Caller;

static void *make_calls(void *given) {
  Caller *own = given;
  Frame *frame = new_frame();
  Model *model = new_model();
  state = own->seed;
  for (int64_t i = 0; i < own->calls; i++) {
    threads_set = 1 + chance() % MOST_THREADS;
    int64_t alone = 0; /* half of the calls share their threads with nobody */
    frame->header.callers = chance() % 2 ? &all_callers : &alone;
    own->wrong += !check(frame, model) || !call(frame);
    if (i % CALLS_PER_FORK == CALLS_PER_FORK - 1)
      own->wrong += !call_in_child(frame, model), own->forks++;
  }
  own->held_up = frame->header.held_up;
  free_frame(frame), free(model);
  return NULL;
}

int main(int count, char **arguments) {
  if (count != 4) return 2;
  int64_t callers = atoll(arguments[1]), wrong = 0, forks = 0, held_up = 0;
  Caller all[64];
  pthread_t threads[64];
  if (callers > 64) return 2;
  make_program();
  for (int64_t i = 0; i < callers; i++) {
    all[i] = (Caller){.calls = atoll(arguments[2]), .seed = 64 * atoll(arguments[3]) + i + 1};
    if (pthread_create(&threads[i], NULL, make_calls, &all[i])) return 2;
  }
  for (int64_t i = 0; i < callers; i++) {
    pthread_join(threads[i], NULL);
    wrong += all[i].wrong, forks += all[i].forks, held_up += all[i].held_up;
  }
  printf("wrong %ld forks %ld held_up %ld\n", (long)wrong, (long)forks, (long)held_up);
  return wrong ? 1 : 0;
}
