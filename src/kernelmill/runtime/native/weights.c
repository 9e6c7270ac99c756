/* Long-lived arguments (parameters): whether they are, and hold, what they were bound with. */

typedef uint64_t Lanes __attribute__((vector_size(128)));

/* A number for the contents of memory: any other bytes at any place make another one, but for a
   chance of 2^-64. Sixteen lanes of 64 bits, each turned and multiplied after every word, so that
   no two changes that follow from each other, such as two signs, take each other back. */
static uint64_t digest(const char *data, uint64_t bytes) {
  const uint64_t odd = 0x9E3779B185EBCA87;
  uint64_t blocks = bytes / sizeof(Lanes), sum = bytes;
  Lanes lanes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, words, last = {0};
  memcpy(&last, data + blocks * sizeof(Lanes), bytes - blocks * sizeof(Lanes));
  for (uint64_t i = 0; i <= blocks; i++) { /* and once for what is left */
    memcpy(&words, i < blocks ? data + i * sizeof(Lanes) : (const char *)&last, sizeof words);
    lanes = (lanes ^ words) * odd;
    lanes = lanes << 29 | lanes >> 35;
  }
  for (int n = 0; n < 16; n++) {
    sum = (sum ^ lanes[n]) * odd;
    sum = sum << 31 | sum >> 33;
  }
  return sum;
}

/* Whether all that is compared of the contents of a parameter is as it was. */
static bool same_contents(const ParameterRecord *parameter) {
  const char *data = parameter->data, *contents = parameter->contents;
  const EdgeRecord *edges = parameter->edges;
  for (int64_t i = 0; i < parameter->edge_count; i++)
    if (memcmp(edges[i].address, edges[i].contents, edges[i].bytes)) return false;
  for (int64_t i = 0; i < parameter->pieces; i++)
    if (memcmp(data + i * parameter->pitch, contents + i * parameter->piece_bytes,
               parameter->piece_bytes))
      return false;
  const int64_t *written = parameter->written_at;
  if (written && __atomic_load_n(written, __ATOMIC_ACQUIRE) != parameter->written) return false;
  return !parameter->digest_bytes ||
         (int64_t)digest(data, parameter->digest_bytes) == parameter->digest;
}

/* Where the tensor of a parameter is kept now; null when it is another object, or has another
   TensorImpl. Another object could have its place, and another TensorImpl be in it. */
static Handle handle_of(const ParameterRecord *parameter, Object *arguments, int64_t impl_offset) {
  Object *object = PyTuple_GetItem(arguments, parameter->argument);
  if (object != parameter->object) return NULL;
  if (!impl_offset) return &parameter->impl;
  Handle tensor = (Handle)((char *)object + impl_offset);
  return object->type == parameter->type && *tensor == parameter->impl ? tensor : NULL;
}

/* Whether a parameter's tensor is the same object, and unchanged, as when it was bound. */
static bool check_parameter(const ParameterRecord *parameter, Object *arguments,
                            int64_t impl_offset) {
  Handle tensor = handle_of(parameter, arguments, impl_offset);
  const int64_t *layout = parameter->layout;
  int64_t rank, *shape, *strides, bytes = parameter->rank * 8;
  int32_t dtype;
  void *data;
  if (!tensor) return false;
  if (aoti_torch_get_data_ptr(tensor, &data) || data != parameter->data) return false;
  if (aoti_torch_get_dim(tensor, &rank) || rank != parameter->rank) return false;
  if (aoti_torch_get_dtype(tensor, &dtype) || dtype != parameter->dtype) return false;
  if (aoti_torch_get_sizes(tensor, &shape) || aoti_torch_get_strides(tensor, &strides))
    return false;
  if (memcmp(shape, layout, bytes) || memcmp(strides, layout + rank, bytes)) return false;
  /* Asking an inference tensor for its version is an error. */
  if (byte(is_inference(tensor)) != parameter->inference) return false;
  if (byte(is_negated(tensor)) != parameter->negated) return false;
  if (parameter->versioned && tensor_version(tensor) != parameter->version) return false;
  return same_contents(parameter);
}

static void fetch(const void *place) { __builtin_prefetch(place, 0, 3); }

/* Asks the caches for what `check_parameter` will read, in two steps: the tensor's object and
   fields and what its record names, when it is some parameters ahead, */
static void fetch_fields(const ParameterRecord *parameter) {
  fetch(parameter->object);
  for (int64_t line = 0; line < 4; line++) fetch((const char *)parameter->impl + 64 * line);
  fetch(parameter->layout);
  fetch(parameter->edges);
  if (parameter->written_at) fetch(parameter->written_at);
}

/* and contents that are compared, when it is near. */
static void fetch_contents(const ParameterRecord *parameter) {
  for (int64_t i = 0; i < parameter->pieces; i++)
    fetch((const char *)parameter->data + i * parameter->pitch);
  const EdgeRecord *edges = parameter->edges;
  for (int64_t i = 0; i < parameter->edge_count; i++) {
    fetch(edges[i].address);
    fetch(edges[i].contents);
  }
}

/* How often somebody began or ended to take what was written (weights/write_watch.py): odd while
   somebody does. */
static int64_t takes_of(const BindingTable *binding) {
  const WatchState *watch = binding->watch;
  return __atomic_load_n(&watch->takes, __ATOMIC_ACQUIRE);
}

/* How many page faults this process had so far, and its epoch; 0 where that is not told. The first
   write to a protected page is one, whoever writes: without any since a scan, there is nothing to
   scan for, and nothing that somebody else could have taken. */
static int64_t faults_of(const BindingTable *binding) {
  const WatchState *watch = binding->watch;
  struct rusage usage;
  if (!watch->epoch || getrusage(RUSAGE_SELF, &usage)) return 0;
  return watch->epoch << 48 | (usage.ru_minflt + usage.ru_majflt);
}

/* Whether none of the pages that a binding watches, of those numbered from `at` up to `last`, was
   written since they were last protected. */
static bool unwritten(const BindingTable *binding, int64_t at, int64_t last) {
  const WatchState *watch = binding->watch;
  const PagesRecord *pages = binding->pages;
  struct page_region region;
  for (; at < last; at++) {
    struct pm_scan_arg scan = {
        .size = sizeof scan,
        .flags = PM_SCAN_CHECK_WPASYNC,
        .start = pages[at].first,
        .end = pages[at].last,
        .vec = (uint64_t)&region,
        .vec_len = 1,
        .max_pages = 1, /* one is enough */
        .category_mask = PAGE_IS_WRITTEN,
        .return_mask = PAGE_IS_WRITTEN,
    };
    if (ioctl(watch->pagemap, PAGEMAP_SCAN, &scan)) return false; /* an error too */
  }
  return true;
}
