/* The arguments of one call: tensors that tvm-ffi has taken apart, and as Python has them. */

/* Whether a shape and strides are those whose numbers are in `dims`. Strides count where the size
   is above 1, and neither they nor memory count in an empty tensor. */
static bool layout_matches(const InputRecord *input, const int64_t *values, const int64_t *shape,
                           const int64_t *strides, bool memory) {
  const int64_t *sizes_wanted = input->dims, *strides_wanted = sizes_wanted + input->rank;
  bool strided = true, empty = false;
  for (int64_t d = 0; d < input->rank; d++) {
    if (shape[d] != values[sizes_wanted[d]]) return false;
    strided &= strides[d] == values[strides_wanted[d]] || shape[d] == 1;
    empty |= shape[d] == 0;
  }
  return (strided && memory) || empty;
}

static bool is_aligned(const InputRecord *input, const void *data) {
  return ((int64_t)data & input->misaligned) == 0;
}

/* Finds the address of a packed argument's data; false when it is no tensor that fits. */
static bool check_tensor(const InputRecord *input, const int64_t *values, const TVMFFIAny *any,
                         void **address) {
  if (any->type_index != kTVMFFITensor) return false;
  const DLTensor *tensor = (const DLTensor *)(any->v_obj + 1);
  int32_t dtype;
  memcpy(&dtype, &tensor->dtype, sizeof dtype);
  if (tensor->device.device_type != kDLCPU || tensor->ndim != input->rank || dtype != input->dtype)
    return false;
  void *data = (char *)tensor->data + tensor->byte_offset;
  if (!is_aligned(input, data) || (!tensor->strides && input->rank)) return false;
  *address = data;
  bool memory = tensor->data; /* wrappers of functorch have none */
  return layout_matches(input, values, tensor->shape, tensor->strides, memory);
}

static bool is_plain_tensor(const QuickTable *quick, const Object *object) {
  return object->type == quick->tensor_type || object->type == quick->parameter_type;
}

/* Finds a size or stride of a tensor, or its offset; false for other objects, and dims that it does
   not have. */
static bool read_layout(const QuickTable *quick, const Object *object, int64_t part, int64_t axis,
                        int64_t *value) {
  if (!is_plain_tensor(quick, object)) return false;
  Handle tensor = (Handle)((char *)object + quick->impl_offset);
  int32_t layout = 0;
  int64_t rank = 0, *found;
  if (!*tensor || aoti_torch_get_layout(tensor, &layout) || layout) return false;
  if (part == STEP_OFFSET) return !aoti_torch_get_storage_offset(tensor, value);
  if (aoti_torch_get_dim(tensor, &rank) || axis >= rank) return false;
  if (part == STEP_STRIDE ? aoti_torch_get_strides(tensor, &found)
                          : aoti_torch_get_sizes(tensor, &found))
    return false;
  *value = found[axis];
  return true;
}

/* Finds the value of a symbol; false for objects and sizes that give none. */
static bool read_symbol(const QuickTable *quick, const SymbolRecord *symbol, Object **registers,
                        int64_t *value) {
  Object *object = registers[symbol->source];
  int overflow;
  if (symbol->part == STEP_INTEGER) { /* a step has seen that it is an integer */
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow;
  }
  if (!read_layout(quick, object, symbol->part, symbol->axis, value)) return false;
  if (symbol->times < 1 || *value < symbol->plus) return false;
  *value = (*value - symbol->plus) / symbol->times;
  return true;
}

/* `check_tensor` for an object of Python; `scalar` is the number of its dtype in torch. */
static bool check_object(const QuickTable *quick, const InputRecord *input, const int64_t *values,
                         const Object *object, int64_t scalar, void **address) {
  if (!is_plain_tensor(quick, object)) return false;
  Handle tensor = (Handle)((char *)object + quick->impl_offset);
  int32_t device = 0, layout = 0, dtype = 0; /* 0 is the CPU, and strided */
  int64_t rank = 0, *shape, *strides;
  void *data;
  if (!*tensor || byte(is_negated(tensor))) return false;
  if (aoti_torch_get_device_type(tensor, &device) || device) return false;
  if (aoti_torch_get_layout(tensor, &layout) || layout) return false;
  if (aoti_torch_get_dtype(tensor, &dtype) || dtype != scalar) return false;
  if (aoti_torch_get_dim(tensor, &rank) || rank != input->rank) return false;
  if (aoti_torch_get_data_ptr(tensor, &data) || !is_aligned(input, data)) return false;
  if (aoti_torch_get_sizes(tensor, &shape) || aoti_torch_get_strides(tensor, &strides))
    return false;
  *address = data;
  return layout_matches(input, values, shape, strides, data);
}

static Object *source_of(const QuickTable *quick, Object **registers, int64_t number) {
  return registers[((const int64_t *)quick->sources)[number]];
}

static void *impl_of(const QuickTable *quick, const Object *object) {
  return *(Handle)((char *)object + quick->impl_offset);
}

/* Checks the tensors of a call that are in registers, and fills in their addresses. Where gradients
   are on, none that is the call's own may require one. */
static bool check_objects(const QuickTable *quick, FrameHeader *frame, Object **registers,
                          bool gradients) {
  const InputRecord *inputs = ((const Table *)frame->table)->inputs;
  const int64_t *scalars = quick->scalars, *own = quick->own;
  void **addresses = addresses_of(frame);
  for (int64_t i = 0; i < quick->tensor_count; i++) {
    Object *object = source_of(quick, registers, i);
    void **address = &addresses[inputs[i].buffer];
    if (!check_object(quick, &inputs[i], frame->values, object, scalars[i], address)) return false;
    bool tracked = gradients && own[i] & ARGUMENT_OWN;
    if (tracked && byte(requires_gradient(impl_of(quick, object)))) return false;
  }
  return true;
}

/* Where a tensor whose layout was checked lies; nowhere when it is empty. */
static PlaceRecord place_of(const InputRecord *input, const int64_t *values, int64_t storage,
                            void *data) {
  const int64_t *sizes = input->dims, *strides = sizes + input->rank;
  PlaceRecord place = {storage, (int64_t)data, (int64_t)data};
  int64_t reach = 1, width = (input->dtype >> 8 & 255) * (input->dtype >> 16) / 8;
  for (int64_t d = 0; d < input->rank; d++) {
    if (!values[sizes[d]]) return place;
    reach += (values[sizes[d]] - 1) * values[strides[d]];
  }
  place.end += reach * width;
  return place;
}

static bool have_one_memory(const PlaceRecord *one, const PlaceRecord *other) {
  return one->first < other->end && other->first < one->end;
}

/* Whether no tensor of the call's own lies in the storage of another one, or of one that is written
   to, in programs that write to some; and none that is written to in the memory of another one,
   which may have a storage of its own: two tensors over an array. The places of the last call that
   was found right are remembered: only those that are others are compared with all. */
static bool no_alias(const QuickTable *quick, FrameHeader *frame, Object **registers) {
  const InputRecord *inputs = ((const Table *)frame->table)->inputs;
  int64_t count = quick->tensor_count;
  const int64_t *own = quick->own;
  PlaceRecord *known = quick->places;
  if (!quick->writes) return true;
  PlaceRecord *now = __builtin_alloca(sizeof(PlaceRecord) * count);
  for (int64_t i = 0; i < count; i++) {
    now[i] = (PlaceRecord){0};
    if (!own[i]) continue;
    char *impl = impl_of(quick, source_of(quick, registers, i));
    int64_t storage = *(int64_t *)(impl + quick->storage_offset);
    if (!storage) return false;
    now[i] = place_of(&inputs[i], frame->values, storage, addresses_of(frame)[inputs[i].buffer]);
  }
  for (int64_t i = 0; i < count; i++) {
    if (!own[i] || !memcmp(&now[i], &known[i], sizeof(PlaceRecord))) continue;
    for (int64_t other = 0; other < count; other++) {
      int64_t either = own[i] | own[other];
      if (other == i || !(either & ARGUMENT_OWN)) continue;
      if (now[other].storage == now[i].storage) return false;
      if (either & ARGUMENT_WRITTEN && have_one_memory(&now[i], &now[other])) return false;
    }
  }
  memcpy(known, now, sizeof(PlaceRecord) * count);
  return true;
}

/* Whether each object that the call will change is another than all that are looked into. */
static bool are_apart(const QuickTable *quick, Object **registers) {
  const int64_t *inner = quick->inner;
  for (int64_t i = 0; i < quick->changed_count; i++)
    for (int64_t other = i + 1; other < quick->inner_count; other++)
      if (registers[inner[i]] == registers[inner[other]]) return false;
  return true;
}

static void put(Object *list, int64_t number, Object *object) {
  Py_IncRef(object); /* the list takes the reference over */
  PyList_SetItem(list, number, object);
}

/* Puts the tensors of a call, then the objects that it will change, into a list of as many
   elements, which keeps them alive. */
static void keep_alive(const QuickTable *quick, Object **registers, Object *list) {
  int64_t count = quick->tensor_count;
  const int64_t *changed = quick->inner;
  if (!list) return;
  for (int64_t i = 0; i < count; i++) put(list, i, source_of(quick, registers, i));
  for (int64_t i = 0; i < quick->changed_count; i++)
    put(list, count + i, registers[changed[i]]);
}

/* Puts the addresses of output tensors, which were made for this call, into the frame; there need
   not be a list of them. */
static void place_outputs(const QuickTable *quick, FrameHeader *frame, const Object *list) {
  const Table *table = frame->table;
  const int64_t *numbers = table->outputs;
  if (!list) return;
  for (int64_t i = 0; i < table->output_count; i++) {
    Handle tensor = (Handle)((char *)list->list_items[i] + quick->impl_offset);
    aoti_torch_get_data_ptr(tensor, &addresses_of(frame)[numbers[i]]); /* never fails for these */
  }
}
