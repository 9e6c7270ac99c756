/* The native entry of every program: checks arguments, finds the address of every buffer, launches.

   It is the same code for all programs: what differs is in tables. Their structures are those of
   ../layout.py, which says what each field means; tools/native_entry.py makes layout.h from it, and
   ../executor.ll from this file.

   Functions whose name starts with km_ follow the packed convention of apache-tvm-ffi. Their
   results are 0, or the status a kernel has set (above 0), or -1 - n for argument n of their own
   tensors that does not fit, or -1 - (number of tensors) - c for parameter c that has changed.
   Nothing is written before every argument has been checked. */

#include "foreign.h"
#include "layout.h"

#include "launch.c"
#include "arguments.c"
#include "weights.c"
#include "guards.c"
#include "checks.c"
#include "changes.c"

static int return_int(TVMFFIAny *result, int64_t value) {
  *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = value};
  return 0;
}

/* A function of the packed convention; its arguments begin at `args`. */
#define ENTRY(name) int name(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result)

/* Checks every argument of a call, then fills in the address of every buffer but the outputs. */
static int64_t validate(FrameHeader *frame, BindingTable *binding, Object *arguments,
                     const TVMFFIAny *tensors) {
  const Table *table = frame->table;
  const InputRecord *inputs = table->inputs;
  for (int64_t i = 0; i < table->input_count; i++) {
    void **address = &addresses_of(frame)[inputs[i].buffer];
    if (!check_tensor(&inputs[i], frame->values, &tensors[i], address)) return ~i;
  }
  return validate_bound(frame, binding, arguments, NULL, 0);
}

/* km_validate(frame, binding, arguments, tensor...): checks only. */
ENTRY(km_validate) {
  return return_int(result, validate(args[0].v_ptr, args[1].v_ptr, args[2].v_ptr, args + 3));
}

/* km_launch(frame, first, last): a run of launches whose addresses are in the frame. */
ENTRY(km_launch) {
  return return_int(result, run(args[0].v_ptr, args[1].v_int64, args[2].v_int64));
}

/* The second half of calls whose tensors are in registers: see km_quick. */
static int64_t call_objects(const QuickTable *quick, const TVMFFIAny *args, Object **registers,
                            Object *arguments, bool gradients, int64_t watch_count) {
  FrameHeader *frame = args[0].v_ptr;
  if (!check_objects(quick, frame, registers, gradients)) return REFUSAL_TENSOR;
  if (!no_alias(quick, frame, registers)) return REFUSAL_TENSOR;
  int64_t code = validate_bound(frame, args[1].v_ptr, arguments, quick->watch, watch_count);
  if (code) return code == CHECK_MOVED ? REFUSAL_WATCH : REFUSAL_TENSOR;
  keep_alive(quick, registers, args[6].v_ptr);
  place_outputs(quick, frame, args[4].v_ptr);
  return run(frame, 0, args[5].v_int64);
}

/* km_quick(frame, binding, quick, values, outputs, last, held): checks all of a call, then runs
   launches up to number `last`. `outputs` is the list of the output tensors, or 0 where these are
   made later; `held` is 0 or a list that gets the tensors of the call and what it changes. Gives 0
   or a status, or a refusal: nothing has been written then. */
ENTRY(km_quick) {
  const FrameHeader *frame = args[0].v_ptr;
  const QuickTable *quick = args[2].v_ptr;
  uint64_t now = settings();
  if ((now & ~(uint64_t)SETTING_GRADIENTS) != (uint64_t)quick->settings ||
      args[1].v_int64 != quick->binding)
    return return_int(result, REFUSAL_SETTINGS);
  Object **registers = __builtin_alloca(sizeof(Object *) * quick->register_count);
  registers[0] = args[3].v_ptr;
  registers[1] = quick->arguments;
  int64_t code = unpack(quick, registers, frame->values);
  if (!code && !are_apart(quick, registers)) code = REFUSAL_TENSOR;
  if (!code)
    code = call_objects(quick, args, registers, registers[1], now & SETTING_GRADIENTS,
                        quick->watch_count);
  return return_int(result, code);
}

/* km_symbols(quick, values, symbols): what the values of a call give each symbol. Gives 0 or a
   refusal. */
ENTRY(km_symbols) {
  const QuickTable *quick = args[0].v_ptr;
  if (quick->settings < 0) return return_int(result, REFUSAL_SETTINGS); /* for all calls */
  Object **registers = __builtin_alloca(sizeof(Object *) * quick->register_count);
  registers[0] = args[1].v_ptr;
  registers[1] = quick->arguments;
  int64_t code = unpack(quick, registers, NULL), *symbols = args[2].v_ptr;
  const SymbolRecord *records = quick->symbols;
  for (int64_t i = 0; !code && i < quick->symbol_count; i++)
    if (!read_symbol(quick, &records[i], registers, &symbols[i])) code = REFUSAL_TENSOR;
  return return_int(result, code);
}

/* km_objects(frame, binding, quick, arguments, outputs, last, held): km_quick for a tuple of the
   program's arguments, where settings and what else a trace depends on have been looked at. */
ENTRY(km_objects) {
  const QuickTable *quick = args[2].v_ptr;
  Object *arguments = args[3].v_ptr, **items = (Object **)((char *)arguments + quick->tuple_items);
  return return_int(result, call_objects(quick, args, items, arguments, false, 0));
}

/* km_settings(): the word of `settings`. */
ENTRY(km_settings) { return return_int(result, settings()); }

/* km_guards_hold(quick): 1 when all that is watched outside of arguments is as it was, else 0. */
ENTRY(km_guards_hold) {
  const QuickTable *quick = args[0].v_ptr;
  return return_int(result, guards_hold(quick->watch, quick->watch_count));
}

/* km_digest(address, bytes): a number for the contents. */
ENTRY(km_digest) { return return_int(result, digest(args[0].v_ptr, args[1].v_int64)); }

/* km_repeat(frame, times): all launches again and again, after a call that filled in the
   addresses. */
ENTRY(km_repeat) {
  FrameHeader *frame = args[0].v_ptr;
  for (int64_t i = 0; i < args[1].v_int64; i++)
    run(frame, 0, ((const Table *)frame->table)->launch_count);
  return return_int(result, frame->status);
}
