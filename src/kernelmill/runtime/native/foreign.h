/* What the native entry uses of others: the C library, OpenMP, torch and CPython.

   Of CPython's structures only what stands below is read, which is the same in 3.11 to 3.14;
   Python.h has those of one version. torch_internals tries on objects of its own whether fields are
   there (objects.py) and functions tell what they should (native.py), and brings the places of what
   moves: the items of a tuple, a tensor's TensorImpl. */

#pragma once
#include <linux/fs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <tvm/ffi/c_api.h>

/* ---- CPython --------------------------------------------------------------------------------- */

typedef struct Object {
  int64_t references;
  struct Object *type;
  int64_t size;                 /* of tuples, lists, dicts; the value of a float or device */
  struct Object **list_items;
} Object;

extern Object *PyTuple_GetItem(Object *tuple, int64_t number);
extern int PyDict_Next(Object *dict, int64_t *position, Object **key, Object **value);
extern int64_t PyLong_AsLongLongAndOverflow(Object *number, int *overflow);
extern Object *_PyDict_GetItem_KnownHash(Object *dict, Object *key, int64_t hash);
extern Object **_PyObject_GetDictPtr(Object *object);
extern int PyList_SetItem(Object *list, int64_t number, Object *item);
extern void Py_IncRef(Object *object);
extern int PyDict_Unwatch(int watcher, Object *dict); /* from 3.12 on, as is the next */
extern int PyType_Unwatch(int watcher, Object *type);

/* ---- torch -----------------------------------------------------------------------------------

   A Handle is the address of a TensorImpl*: what torch's C shims call a tensor, and where a
   `const at::Tensor &` points. A C++ bool or int8_t comes back in the low byte of a register, the
   rest of which is anything: it is declared as int and read by `byte`. */

typedef void *const *Handle;

static inline uint8_t byte(int returned) { return (uint8_t)returned; }

extern int aoti_torch_get_data_ptr(Handle, void **);
extern int aoti_torch_get_dim(Handle, int64_t *);
extern int aoti_torch_get_dtype(Handle, int32_t *);
extern int aoti_torch_get_sizes(Handle, int64_t **);
extern int aoti_torch_get_strides(Handle, int64_t **);
extern int aoti_torch_get_storage_offset(Handle, int64_t *);
extern int aoti_torch_get_device_type(Handle, int32_t *);
extern int aoti_torch_get_layout(Handle, int32_t *);

#define NAMED(symbol) __asm__(symbol)
/* at::get_num_threads() */
extern int get_num_threads(void) NAMED("_ZN2at15get_num_threadsEv");
/* at::TensorBase::_version() const */
extern int64_t tensor_version(Handle) NAMED("_ZNK2at10TensorBase8_versionEv");
/* at::native::is_neg(const Tensor &) */
extern int is_negated(Handle) NAMED("_ZN2at6native6is_negERKNS_6TensorE");
/* at::native::is_inference(const Tensor &) */
extern int is_inference(Handle) NAMED("_ZN2at6native12is_inferenceERKNS_6TensorE");
/* c10::TensorImpl::requires_grad() const */
extern int requires_gradient(void *impl) NAMED("_ZNK3c1010TensorImpl13requires_gradEv");
/* at::autocast::is_autocast_enabled(DeviceType), get_autocast_dtype(DeviceType) */
extern int autocast_enabled(int device)
    NAMED("_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE");
extern int autocast_dtype(int device)
    NAMED("_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE");
/* at::globalContext(), at::Context::deterministicAlgorithms() const */
extern const void *global_context(void) NAMED("_ZN2at13globalContextEv");
extern int is_deterministic(const void *) NAMED("_ZNK2at7Context23deterministicAlgorithmsEv");
/* at::Context::float32Precision(Float32Backend, Float32Op) const */
extern int float32_precision(const void *context, int backend, int operators)
    NAMED("_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE");
/* c10::get_default_dtype_as_scalartype(), c10::GradMode::is_enabled() */
extern int default_dtype(void) NAMED("_ZN3c1031get_default_dtype_as_scalartypeEv");
extern int gradients_enabled(void) NAMED("_ZN3c108GradMode10is_enabledEv");
/* how many function and dispatch modes are active */
extern int64_t function_modes(void) NAMED("_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
extern int64_t dispatch_modes(void) NAMED("_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv");

/* ---- OpenMP and the C library ---------------------------------------------------------------- */

extern void GOMP_parallel(void (*body)(void *), void *shared, unsigned threads, unsigned flags);
extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);
extern int sched_yield(void);
extern int usleep(unsigned microseconds);
#define OPEN_TO_READ 02000000 /* O_RDONLY | O_CLOEXEC */
extern int open(const char *path, int flags, ...);
extern int64_t read(int file, void *into, size_t bytes);
extern int close(int file);
extern uint64_t pthread_self(void);
extern int pthread_getcpuclockid(uint64_t thread, int32_t *clock);
struct Time {
  int64_t seconds, nanoseconds;
};
extern int clock_gettime(int32_t clock, struct Time *time);
extern int fegetmode(void *mode); /* of fenv.h, which not every C library has */
