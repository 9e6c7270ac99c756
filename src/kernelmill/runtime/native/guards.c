/* Calls of programs that were bound: what is checked besides tensors is a table too.

   The caller holds Python's lock. Objects of Python are read where CPython keeps them (foreign.h);
   a dict has a version there, which is another after every change. */

enum { MKLDNN = 2, CONVOLUTIONS = 1, RECURRENCES = 2, PRODUCTS = 3 }; /* at::Float32Backend, -Op */

/* How exactly oneDNN computes float32 in some operators, 2 bits: 0 is exactly, said so or not, 2
   TF32, 3 bfloat16. */
static uint64_t precision(const void *context, int operators) {
  int found = float32_precision(context, MKLDNN, operators);
  return found > 1 ? found & 3 : 0;
}

/* How this thread's floats are computed: flushing to zero, rounding, denormals that are zeros. On
   x86-64 fegetmode writes MXCSR into the upper half, and into the lower one a word of x87 of 16
   bits; on AArch64 it writes FPCR into the lower half, and leaves the upper one. */
static uint64_t float_mode(void) {
  uint64_t mode = 0;
  fegetmode(&mode);
  return (mode >> 32 & 0xE040) | (mode >> 22 & 7);
}

/* Puts a number where the bits of `mask` are. */
static uint64_t at(uint64_t mask, uint64_t number) { return number * (mask & -mask) & mask; }

typedef int (*Flag)(const void *context);
extern const Flags km_flags; /* brought by whoever links this */

static uint64_t flags(const void *context) {
  const Flag *functions = km_flags.functions;
  uint64_t found = 0;
  for (int64_t number = 0; number < km_flags.count; number++)
    found |= (uint64_t)byte(functions[number](context)) << number;
  return found;
}

/* The settings of torch and of this thread as one word. */
static uint64_t settings(void) {
  const void *context = global_context();
  uint64_t exactly = precision(context, CONVOLUTIONS) | precision(context, RECURRENCES) << 2 |
                     precision(context, PRODUCTS) << 4;
  return at(SETTING_AUTOCAST, byte(autocast_enabled(0))) |
         at(SETTING_DETERMINISM, byte(is_deterministic(context))) |
         at(SETTING_GRADIENTS, byte(gradients_enabled())) |
         at(SETTING_FUNCTION_MODES, function_modes() != 0) |
         at(SETTING_DISPATCH_MODES, dispatch_modes() != 0) |
         at(SETTING_DEFAULT_DTYPE, byte(default_dtype())) |
         at(SETTING_AUTOCAST_DTYPE, byte(autocast_dtype(0))) | at(SETTING_PRECISION, exactly) |
         at(SETTING_FLOAT_MODE, float_mode()) | at(SETTING_FLAGS, flags(context));
}

static bool holds(const WatchRecord *record) {
  const Object *owner = record->owner;
  switch (record->kind) {
    case WATCH_VERSION:
    case WATCH_WORD:
      return *(int64_t *)((char *)owner + record->number) == record->expected;
    case WATCH_DICT_ITEM:
      return (int64_t)_PyDict_GetItem_KnownHash(record->owner, record->key, record->number) ==
             record->expected;
    case WATCH_LIST_ITEM:
      return (uint64_t)record->number < (uint64_t)owner->size &&
             (int64_t)owner->list_items[record->number] == record->expected;
  }
  return false;
}

/* Whether all that these records watch is as it was. What they look at lies far apart and has been
   out of the caches since the last call: it is asked for some records ahead. */
static bool guards_hold(const WatchRecord *records, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    const Object *ahead = records[least(i + 16, count - 1)].owner;
    __builtin_prefetch(&ahead->size, 0, 3);
    if (!holds(&records[i])) return false;
  }
  return true;
}

/* What an object's own __dict__ has under a name, whose hash is given; null for nothing. */
static Object *attribute(Object *object, Object *name, int64_t hash) {
  Object **place = _PyObject_GetDictPtr(object);
  return place && *place ? _PyDict_GetItem_KnownHash(*place, name, hash) : NULL;
}

static bool is_integer(Object *object, int64_t value) {
  int overflow;
  return PyLong_AsLongLongAndOverflow(object, &overflow) == value && !overflow;
}

/* The entries of a dict that has these keys, in this order. */
static bool take_entries(Object *dict, Object *const *keys, int64_t count, Object **targets) {
  int64_t position = 0;
  Object *key;
  for (int64_t i = 0; i < count; i++)
    if (!PyDict_Next(dict, &position, &key, &targets[i]) || key != keys[i]) return false;
  return true;
}

static bool take_items(Object *const *items, int64_t count, Object **targets) {
  for (int64_t i = 0; i < count; i++) targets[i] = items[i];
  return true;
}

/* The registers that a step fills; of other kinds `target` is a number. */
static Object **targets_of(const StepRecord *step, Object **registers) {
  return registers + step->target;
}

/* Whether an object is as a step says; what is in it goes to registers. */
static bool take(const QuickTable *quick, const StepRecord *step, Object **registers) {
  Object *object = registers[step->source], *operand = step->operand;
  switch (step->operation) {
    case STEP_TYPE:
      return object->type == operand;
    case STEP_IDENTITY:
      return object == operand;
    case STEP_TUPLE:
      return object->size == step->count &&
             take_items((Object **)((char *)object + quick->tuple_items), step->count,
                        targets_of(step, registers));
    case STEP_LIST:
      return object->size == step->count &&
             take_items(object->list_items, step->count, targets_of(step, registers));
    case STEP_DICT:
      return object->size == step->count &&
             take_entries(object, step->operand, step->count, targets_of(step, registers));
    case STEP_SAME:
      return (object == registers[step->target]) == step->count;
    case STEP_FIELD:
      return (object->size & (int64_t)operand) == step->target;
    case STEP_ATTRIBUTE:
      return (*targets_of(step, registers) = attribute(object, operand, step->count));
    case STEP_ABSENT:
      return !attribute(object, operand, step->count);
    case STEP_EQUAL:
      return is_integer(object, step->target);
  }
  return false;
}

static bool is_about_dim(const StepRecord *step) {
  return step->operation == STEP_INTEGER || step->operation >= STEP_SIZE;
}

/* Whether an integer, or what a tensor says of its layout, is what a dim is. */
static bool is_dim(const QuickTable *quick, const StepRecord *step, Object **registers,
                   const int64_t *values) {
  Object *object = registers[step->source];
  int64_t found, value = values[step->count];
  if (step->operation == STEP_INTEGER) return is_integer(object, value);
  return read_layout(quick, object, step->operation, step->target, &found) && found == value;
}

/* Takes a call's values apart into registers, as the steps say. Gives 0 or a refusal. What dims
   say is compared where their `values` are known. */
static int64_t unpack(const QuickTable *quick, Object **registers, const int64_t *values) {
  const StepRecord *steps = quick->steps;
  for (int64_t i = 0; i < quick->step_count; i++) {
    if (is_about_dim(&steps[i])) {
      if (values && !is_dim(quick, &steps[i], registers, values)) return REFUSAL_TENSOR;
    } else if (!take(quick, &steps[i], registers)) {
      return REFUSAL_STRUCTURE;
    }
  }
  return 0;
}
