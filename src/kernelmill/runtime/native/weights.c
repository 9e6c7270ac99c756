/* Long-lived arguments (cells): whether they are, and hold, what they were bound with. */

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

/* Whether all that is compared of the contents of a cell is as it was. */
static bool same_contents(const CellRecord *cell) {
  const char *data = cell->data, *contents = cell->contents;
  for (int64_t i = 0; i < cell->pieces; i++)
    if (memcmp(data + i * cell->pitch, contents + i * cell->piece_bytes, cell->piece_bytes))
      return false;
  const int64_t *written = cell->written_at;
  if (written && __atomic_load_n(written, __ATOMIC_ACQUIRE) != cell->written) return false;
  return !cell->digest_bytes || (int64_t)digest(data, cell->digest_bytes) == cell->digest;
}

/* Where the tensor of a cell is kept now; null when it is another object, or has another
   TensorImpl. Another object could have its place, and another TensorImpl be in it. */
static Handle handle_of(const CellRecord *cell, Object *arguments, int64_t impl_offset) {
  Object *object = PyTuple_GetItem(arguments, cell->argument);
  if (object != cell->object) return NULL;
  if (!impl_offset) return &cell->impl;
  Handle tensor = (Handle)((char *)object + impl_offset);
  return object->type == cell->type && *tensor == cell->impl ? tensor : NULL;
}

/* Whether a cell's tensor is the same object, and unchanged, as when it was bound. */
static bool check_cell(const CellRecord *cell, Object *arguments, int64_t impl_offset) {
  Handle tensor = handle_of(cell, arguments, impl_offset);
  const int64_t *layout = cell->layout;
  int64_t rank, *shape, *strides, bytes = cell->rank * 8;
  int32_t dtype;
  void *data;
  if (!tensor) return false;
  if (aoti_torch_get_data_ptr(tensor, &data) || data != cell->data) return false;
  if (aoti_torch_get_dim(tensor, &rank) || rank != cell->rank) return false;
  if (aoti_torch_get_dtype(tensor, &dtype) || dtype != cell->dtype) return false;
  if (aoti_torch_get_sizes(tensor, &shape) || aoti_torch_get_strides(tensor, &strides))
    return false;
  if (memcmp(shape, layout, bytes) || memcmp(strides, layout + rank, bytes)) return false;
  /* Asking an inference tensor for its version is an error. */
  if (byte(is_inference(tensor)) != cell->inference) return false;
  if (cell->versioned && tensor_version(tensor) != cell->version) return false;
  return same_contents(cell);
}

/* Asks the caches for what `check_cell` will read: the tensor's fields, pieces of its data. */
static void fetch_cell(const CellRecord *cell) {
  __builtin_prefetch(cell->impl, 0, 3);
  __builtin_prefetch((const char *)cell->impl + 64, 0, 3);
  for (int64_t i = 0; i < cell->pieces; i++)
    __builtin_prefetch((const char *)cell->data + i * cell->pitch, 0, 3);
}

/* Whether none of the pages that a binding watches was written since they were last protected. */
static bool unwritten(const BindingTable *binding) {
  const WatchState *watch = binding->watch;
  const PagesRecord *pages = binding->pages;
  if (!binding->pages_count) return true;
  struct page_region region;
  for (int64_t i = 0; i < binding->pages_count; i++) {
    struct pm_scan_arg scan = {
        .size = sizeof scan,
        .flags = PM_SCAN_CHECK_WPASYNC,
        .start = pages[i].first,
        .end = pages[i].last,
        .vec = (uint64_t)&region,
        .vec_len = 1,
        .max_pages = 1, /* one is enough */
        .category_mask = PAGE_IS_WRITTEN,
        .return_mask = PAGE_IS_WRITTEN,
    };
    if (ioctl(watch->pagemap, PAGEMAP_SCAN, &scan)) return false; /* an error too */
  }
  /* What somebody takes meanwhile is not found, and not yet in the cells. */
  return !__atomic_load_n(&watch->busy, __ATOMIC_ACQUIRE);
}

/* Whether the edges that a binding compares are as they were. */
static bool same_edges(const BindingTable *binding) {
  const EdgeRecord *edges = binding->edges;
  for (int64_t i = 0; i < binding->edge_count; i++)
    if (memcmp(edges[i].address, edges[i].contents, edges[i].bytes)) return false;
  return true;
}

/* Checks the cells of a binding, if there is one, and fills in the addresses of cells, packed and
   arena buffers. Gives 0, or -1 - number of the argument that is otherwise. */
static int64_t admit_bound(FrameHeader *frame, const BindingTable *binding, Object *arguments) {
  const Table *table = frame->table;
  const int64_t *values = frame->values;
  void **addresses = addresses_of(frame);
  if (binding) {
    const CellRecord *cells = binding->cells;
    const PackedRecord *packed = binding->packed;
    if (!unwritten(binding)) return ~table->input_count; /* before cells: see there */
    for (int64_t i = 0; i < binding->cell_count; i++) {
      fetch_cell(&cells[least(i + 2, binding->cell_count - 1)]);
      if (!check_cell(&cells[i], arguments, binding->impl_offset))
        return ~(i + table->input_count);
      addresses[cells[i].buffer] = cells[i].address;
    }
    if (!same_edges(binding)) return ~table->input_count; /* in memory that the cells have proved */
    for (int64_t i = 0; i < binding->packed_count; i++)
      addresses[packed[i].buffer] = packed[i].address;
  }
  const ArenaRecord *arena = table->arena;
  for (int64_t i = 0; i < table->arena_count; i++)
    addresses[arena[i].buffer] = (char *)frame->arena + values[arena[i].offset];
  frame->calls++;
  frame->status = 0;
  return 0;
}
