; The native entry of every program: checks arguments, finds the address of every buffer, launches.
;
; It is the same code for all programs: what differs is in tables (layout.py has the same types and
; says what each field means). Functions whose name starts with km_ follow the packed convention of
; apache-tvm-ffi: int (void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result). They
; give back 0, or the status a kernel has set (above 0), or -1 - n for argument n of their own
; tensors that does not fit, or -1 - (number of tensors) - c for cell c that has changed. Nothing is
; written before every argument has been checked.

%Any      = type { i32, i32, i64 }                          ; type index, padding, value
%DLTensor = type { ptr, i32, i32, i32, i32, ptr, ptr, i64 } ; data, device type and number, rank,
                                                            ; dtype, shape, strides, byte offset
%Input    = type { i64, i64, i32, i32, ptr }
%Arena    = type { i64, i64 }
%Launch   = type { ptr, i64, ptr, i64, ptr, i64, i64, i64, i64 }
%Table    = type { i64, ptr, i64, ptr, i64, ptr, i64, ptr, i64, i64, i64 }
%Cell     = type { ptr, ptr, i64, ptr, ptr, i64, i64, i64, i64, i64, ptr, i64, ptr, i64, i64, i64,
              ptr, ptr, i64, i64, i64 }
%Packed   = type { i64, ptr }
%Pages    = type { i64, i64 }
%Edge     = type { ptr, i64, ptr }
%Writes   = type { i64, i64 }                               ; WatchState
%Binding  = type { i64, ptr, i64, ptr, i64, ptr, i64, ptr, i64, ptr }
%Scan     = type { i64, i64, i64, i64, i64, ptr, i64, i64, i64, i64, i64, i64 } ; of PAGEMAP_SCAN
%Frame    = type { ptr, ptr, ptr, ptr, i64, i64, i64, i64, ptr, ptr, [0 x ptr] }
%Quick    = type { i64, i64, ptr, i64, ptr, i64, i64, ptr, ptr, ptr, ptr, ptr, i64, ptr,
              ptr, ptr, i64 }
%Watch    = type { i64, ptr, ptr, i64, i64 }
%Step     = type { i64, i64, ptr, i64, i64 }
%Region   = type { ptr, ptr, ptr, i64, ptr, i64 }           ; kernel, buffers, dims, tasks, scratch,
                                                            ; scratch bytes of one thread

declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare i32 @_ZN2at15get_num_threadsEv()                    ; at::get_num_threads()
declare i64 @_ZNK2at10TensorBase8_versionEv(ptr)            ; at::TensorBase::_version() const
declare i32 @aoti_torch_get_data_ptr(ptr, ptr)
declare i32 @aoti_torch_get_dim(ptr, ptr)
declare i32 @aoti_torch_get_dtype(ptr, ptr)
declare i32 @aoti_torch_get_sizes(ptr, ptr)
declare i32 @aoti_torch_get_strides(ptr, ptr)
declare i32 @aoti_torch_get_device_type(ptr, ptr)
declare i32 @aoti_torch_get_layout(ptr, ptr)
declare zeroext i1 @_ZN2at6native6is_negERKNS_6TensorE(ptr) ; at::native::is_neg(const Tensor&)
declare zeroext i1 @_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE(i8 signext)
declare ptr @_ZN2at13globalContextEv()                      ; at::globalContext()
declare zeroext i1 @_ZNK2at7Context23deterministicAlgorithmsEv(ptr)
declare signext i8 @_ZN3c1031get_default_dtype_as_scalartypeEv()
declare zeroext i1 @_ZN3c108GradMode10is_enabledEv()        ; c10::GradMode::is_enabled()
declare signext i8 @_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE(i8 signext)
declare i64 @_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv()   ; how many function modes are active
declare i64 @_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv()    ; and how many dispatch modes
declare i32 @_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE(ptr, i32, i32)
declare i32 @fegetmode(ptr)                                 ; the C library's, of fenv.h
declare ptr @PyTuple_GetItem(ptr, i64)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare ptr @_PyDict_GetItem_KnownHash(ptr, ptr, i64)
declare ptr @_PyObject_GetDictPtr(ptr)
declare void @Py_IncRef(ptr)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare zeroext i1 @_ZN2at6native12is_inferenceERKNS_6TensorE(ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare i32 @ioctl(i32, i64, ...)
declare ptr @memset(ptr, i32, i64)
declare ptr @memcpy(ptr, ptr, i64)

; ---- launches ------------------------------------------------------------------------------------

; One thread's share of a parallel region: tasks are split evenly, in order, by thread number.
define internal void @share(ptr %region) {
  %r = load %Region, ptr %region
  %kernel = extractvalue %Region %r, 0
  %buffers = extractvalue %Region %r, 1
  %dims = extractvalue %Region %r, 2
  %tasks = extractvalue %Region %r, 3
  %scratch = extractvalue %Region %r, 4
  %scratch.bytes = extractvalue %Region %r, 5
  %number.32 = call i32 @omp_get_thread_num()
  %threads.32 = call i32 @omp_get_num_threads()
  %number = zext i32 %number.32 to i64
  %threads = zext i32 %threads.32 to i64
  %next = add i64 %number, 1
  %begin.scaled = mul i64 %tasks, %number
  %end.scaled = mul i64 %tasks, %next
  %begin = udiv i64 %begin.scaled, %threads
  %end = udiv i64 %end.scaled, %threads
  %own.offset = mul i64 %scratch.bytes, %number
  %own = getelementptr i8, ptr %scratch, i64 %own.offset
  call void %kernel(ptr %buffers, ptr %dims, i64 %begin, i64 %end, ptr %own)
  ret void
}

; The same for the driver of a super kernel, which splits the tasks of its sub-kernels itself.
define internal void @walk(ptr %region) {
  %r = load %Region, ptr %region
  %driver = extractvalue %Region %r, 0
  %buffers = extractvalue %Region %r, 1
  %scratch = extractvalue %Region %r, 4
  %scratch.bytes = extractvalue %Region %r, 5
  %number.32 = call i32 @omp_get_thread_num()
  %threads.32 = call i32 @omp_get_num_threads()
  %number = zext i32 %number.32 to i64
  %threads = zext i32 %threads.32 to i64
  %own.offset = mul i64 %scratch.bytes, %number
  %own = getelementptr i8, ptr %scratch, i64 %own.offset
  call void %driver(ptr %buffers, ptr null, i64 %number, i64 %threads, ptr %own)
  ret void
}

; Launches number %first up to %last of the frame's table.
define internal void @run(ptr %frame, i64 %first, i64 %last) {
entry:
  %table = load ptr, ptr %frame
  %values.at = getelementptr %Frame, ptr %frame, i32 0, i32 1
  %values = load ptr, ptr %values.at
  %scratch.at = getelementptr %Frame, ptr %frame, i32 0, i32 3
  %scratch = load ptr, ptr %scratch.at
  %scratch.bytes.at = getelementptr %Frame, ptr %frame, i32 0, i32 4
  %scratch.bytes = load i64, ptr %scratch.bytes.at
  %most.threads.at = getelementptr %Frame, ptr %frame, i32 0, i32 5
  %most.threads = load i64, ptr %most.threads.at
  %addresses = getelementptr %Frame, ptr %frame, i32 0, i32 10
  %launches.at = getelementptr %Table, ptr %table, i32 0, i32 7
  %launches = load ptr, ptr %launches.at
  %widest.at = getelementptr %Table, ptr %table, i32 0, i32 8
  %widest = load i64, ptr %widest.at
  %most.dims.at = getelementptr %Table, ptr %table, i32 0, i32 9
  %most.dims = load i64, ptr %most.dims.at
  %threshold.at = getelementptr %Table, ptr %table, i32 0, i32 10
  %threshold = load i64, ptr %threshold.at
  %buffers = alloca ptr, i64 %widest
  %dims = alloca i64, i64 %most.dims
  %region = alloca %Region
  br label %launch.head

launch.head:
  %i = phi i64 [ %first, %entry ], [ %i.next, %launch.done ]
  %more = icmp ult i64 %i, %last
  br i1 %more, label %launch, label %exit

launch:
  %at = getelementptr %Launch, ptr %launches, i64 %i
  %record = load %Launch, ptr %at
  %kernel = extractvalue %Launch %record, 0
  %buffer.count = extractvalue %Launch %record, 1
  %buffer.numbers = extractvalue %Launch %record, 2
  %dim.count = extractvalue %Launch %record, 3
  %dim.numbers = extractvalue %Launch %record, 4
  %tasks.number = extractvalue %Launch %record, 5
  %work.number = extractvalue %Launch %record, 6
  %span = extractvalue %Launch %record, 7
  %super.word = extractvalue %Launch %record, 8
  %super = icmp ne i64 %super.word, 0
  %tasks.at = getelementptr i64, ptr %values, i64 %tasks.number
  %tasks = load i64, ptr %tasks.at
  %work.at = getelementptr i64, ptr %values, i64 %work.number
  %work = load i64, ptr %work.at
  %busy = icmp sgt i64 %tasks, 0
  br i1 %busy, label %buffer.head, label %launch.done

buffer.head:
  %b = phi i64 [ 0, %launch ], [ %b.next, %buffer ]
  %b.more = icmp ult i64 %b, %buffer.count
  br i1 %b.more, label %buffer, label %dim.head

buffer:
  %number.at = getelementptr i64, ptr %buffer.numbers, i64 %b
  %number = load i64, ptr %number.at
  %address.at = getelementptr ptr, ptr %addresses, i64 %number
  %address = load ptr, ptr %address.at
  %buffer.at = getelementptr ptr, ptr %buffers, i64 %b
  store ptr %address, ptr %buffer.at
  %b.next = add i64 %b, 1
  br label %buffer.head

dim.head:
  %d = phi i64 [ 0, %buffer.head ], [ %d.next, %dim ]
  %d.more = icmp ult i64 %d, %dim.count
  br i1 %d.more, label %dim, label %bound

dim:
  %dim.number.at = getelementptr i64, ptr %dim.numbers, i64 %d
  %dim.number = load i64, ptr %dim.number.at
  %value.at = getelementptr i64, ptr %values, i64 %dim.number
  %value = load i64, ptr %value.at
  %dim.at = getelementptr i64, ptr %dims, i64 %d
  store i64 %value, ptr %dim.at
  %d.next = add i64 %d, 1
  br label %dim.head

bound:
  %several = icmp ne i64 %tasks, 1
  %heavy = icmp sge i64 %work, %threshold
  %worthwhile = and i1 %several, %heavy
  br i1 %worthwhile, label %ask, label %alone

ask:
  %wanted.32 = call i32 @_ZN2at15get_num_threadsEv()
  %wanted = sext i32 %wanted.32 to i64
  %share.worthwhile = lshr i64 %threshold, 1                ; so that two threads have enough
  %occupied = udiv i64 %work, %share.worthwhile
  %allowed = call i64 @llvm.smin.i64(i64 %wanted, i64 %most.threads)
  %useful = call i64 @llvm.smin.i64(i64 %tasks, i64 %occupied)
  %threads = call i64 @llvm.smin.i64(i64 %allowed, i64 %useful)
  %team = icmp sgt i64 %threads, 1
  br i1 %team, label %together, label %alone

together:
  %r0 = insertvalue %Region poison, ptr %kernel, 0
  %r1 = insertvalue %Region %r0, ptr %buffers, 1
  %r2 = insertvalue %Region %r1, ptr %dims, 2
  %r3 = insertvalue %Region %r2, i64 %tasks, 3
  %r4 = insertvalue %Region %r3, ptr %scratch, 4
  %r5 = insertvalue %Region %r4, i64 %scratch.bytes, 5
  store %Region %r5, ptr %region
  %threads.32 = trunc i64 %threads to i32
  br i1 %super, label %together.super, label %together.plain

together.plain:
  call void @GOMP_parallel(ptr @share, ptr %region, i32 %threads.32, i32 0)
  br label %launch.done

together.super:
  %lines = load ptr, ptr %buffers                           ; a cache line for each thread
  %lines.bytes = mul i64 %most.threads, 64
  %cleared = call ptr @memset(ptr %lines, i32 0, i64 %lines.bytes)
  call void @GOMP_parallel(ptr @walk, ptr %region, i32 %threads.32, i32 0)
  br label %launch.done

alone:
  %alone.end = select i1 %super, i64 1, i64 %tasks          ; of a team of one
  call void %kernel(ptr %buffers, ptr %dims, i64 0, i64 %alone.end, ptr %scratch)
  br label %launch.done

launch.done:
  %i.next = add i64 %i, %span
  br label %launch.head

exit:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)

; ---- arguments -----------------------------------------------------------------------------------

; Whether a shape and strides are those whose numbers are in %dims. Strides count where the size is
; above 1, and neither they nor memory count in an empty tensor.
define internal i1 @fits(i64 %rank, ptr %dims, ptr %values, ptr %shape, ptr %strides, i1 %memory) {
entry:
  br label %dim.head

dim.head:
  %d = phi i64 [ 0, %entry ], [ %d.next, %dim.good ]
  %strided = phi i1 [ true, %entry ], [ %strided.next, %dim.good ]
  %empty = phi i1 [ false, %entry ], [ %empty.next, %dim.good ]
  %more = icmp ult i64 %d, %rank
  br i1 %more, label %dim, label %checked

dim:
  %size.at = getelementptr i64, ptr %shape, i64 %d
  %size = load i64, ptr %size.at
  %stride.at = getelementptr i64, ptr %strides, i64 %d
  %stride = load i64, ptr %stride.at
  %size.number.at = getelementptr i64, ptr %dims, i64 %d
  %size.number = load i64, ptr %size.number.at
  %size.wanted.at = getelementptr i64, ptr %values, i64 %size.number
  %size.wanted = load i64, ptr %size.wanted.at
  %stride.entry = add i64 %d, %rank
  %stride.number.at = getelementptr i64, ptr %dims, i64 %stride.entry
  %stride.number = load i64, ptr %stride.number.at
  %stride.wanted.at = getelementptr i64, ptr %values, i64 %stride.number
  %stride.wanted = load i64, ptr %stride.wanted.at
  %same.size = icmp eq i64 %size, %size.wanted
  br i1 %same.size, label %dim.good, label %wrong

dim.good:
  %same.stride = icmp eq i64 %stride, %stride.wanted
  %single = icmp eq i64 %size, 1
  %stride.fits = or i1 %same.stride, %single
  %strided.next = and i1 %strided, %stride.fits
  %none = icmp eq i64 %size, 0
  %empty.next = or i1 %empty, %none
  %d.next = add i64 %d, 1
  br label %dim.head

checked:
  %sound = and i1 %strided, %memory
  %right = or i1 %sound, %empty
  ret i1 %right

wrong:
  ret i1 false
}

; The address of a packed argument's data when it is a tensor that fits %input, else null with
; %fits false. Strides count where the size is above 1, and not at all in an empty tensor.
define internal { ptr, i1 } @check_tensor(ptr %input, ptr %values, ptr %any) {
entry:
  %record = load %Input, ptr %input
  %rank = extractvalue %Input %record, 1
  %dtype = extractvalue %Input %record, 2
  %misaligned = extractvalue %Input %record, 3
  %dims = extractvalue %Input %record, 4
  %type = load i32, ptr %any
  %is.tensor = icmp eq i32 %type, 70                        ; kTVMFFITensor
  br i1 %is.tensor, label %tensor, label %wrong

tensor:
  %object.at = getelementptr %Any, ptr %any, i32 0, i32 2
  %object = load ptr, ptr %object.at
  %dl = getelementptr i8, ptr %object, i64 24               ; behind the object's header
  %device.at = getelementptr %DLTensor, ptr %dl, i32 0, i32 1
  %device = load i32, ptr %device.at
  %on.cpu = icmp eq i32 %device, 1                          ; kDLCPU
  %rank.at = getelementptr %DLTensor, ptr %dl, i32 0, i32 3
  %its.rank.32 = load i32, ptr %rank.at
  %its.rank = sext i32 %its.rank.32 to i64
  %same.rank = icmp eq i64 %its.rank, %rank
  %dtype.at = getelementptr %DLTensor, ptr %dl, i32 0, i32 4
  %its.dtype = load i32, ptr %dtype.at
  %same.dtype = icmp eq i32 %its.dtype, %dtype
  %data.at = getelementptr %DLTensor, ptr %dl, i32 0, i32 0
  %base = load ptr, ptr %data.at
  %offset.at = getelementptr %DLTensor, ptr %dl, i32 0, i32 7
  %offset = load i64, ptr %offset.at
  %data = getelementptr i8, ptr %base, i64 %offset
  %data.bits = ptrtoint ptr %data to i64
  %mask = sext i32 %misaligned to i64
  %crooked.bits = and i64 %data.bits, %mask
  %aligned = icmp eq i64 %crooked.bits, 0
  %shape.at = getelementptr %DLTensor, ptr %dl, i32 0, i32 5
  %shape = load ptr, ptr %shape.at
  %strides.at = getelementptr %DLTensor, ptr %dl, i32 0, i32 6
  %strides = load ptr, ptr %strides.at
  %has.strides = icmp ne ptr %strides, null
  %is.scalar = icmp eq i64 %rank, 0
  %readable = or i1 %has.strides, %is.scalar
  %ok.1 = and i1 %on.cpu, %same.rank
  %ok.2 = and i1 %same.dtype, %aligned
  %ok.3 = and i1 %ok.1, %ok.2
  %ok.4 = and i1 %ok.3, %readable
  %has.memory = icmp ne ptr %base, null                     ; wrappers of functorch have none
  br i1 %ok.4, label %compare, label %wrong

compare:
  %fits = call i1 @fits(i64 %rank, ptr %dims, ptr %values, ptr %shape, ptr %strides, i1 %has.memory)
  br i1 %fits, label %right, label %wrong

right:
  %pair = insertvalue { ptr, i1 } { ptr null, i1 true }, ptr %data, 0
  ret { ptr, i1 } %pair

wrong:
  ret { ptr, i1 } { ptr null, i1 false }
}

; Asks for what @check_cell will read of a cell: the tensor's fields, pieces of its data.
define internal void @fetch_cell(ptr %cell) {
entry:
  %record = load %Cell, ptr %cell
  %tensor = extractvalue %Cell %record, 3
  %data = extractvalue %Cell %record, 4
  %pieces = extractvalue %Cell %record, 13
  %pitch = extractvalue %Cell %record, 15
  %sizes.at = getelementptr i8, ptr %tensor, i64 64
  call void @llvm.prefetch.p0(ptr %tensor, i32 0, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %sizes.at, i32 0, i32 3, i32 1)
  br label %head

head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %piece ]
  %more = icmp ult i64 %i, %pieces
  br i1 %more, label %piece, label %done

piece:
  %offset = mul i64 %i, %pitch
  %at = getelementptr i8, ptr %data, i64 %offset
  call void @llvm.prefetch.p0(ptr %at, i32 0, i32 3, i32 1)
  %i.next = add i64 %i, 1
  br label %head

done:
  ret void
}

; Whether a long-lived argument is the same object, and unchanged, as when it was bound.
define internal i1 @check_cell(ptr %cell, ptr %arguments, i64 %impl.offset) {
entry:
  %record = load %Cell, ptr %cell
  %object = extractvalue %Cell %record, 0
  %type = extractvalue %Cell %record, 1
  %argument = extractvalue %Cell %record, 2
  %impl = extractvalue %Cell %record, 3
  %data = extractvalue %Cell %record, 4
  %version = extractvalue %Cell %record, 5
  %versioned.word = extractvalue %Cell %record, 6
  %inference.word = extractvalue %Cell %record, 7
  %rank = extractvalue %Cell %record, 8
  %dtype = extractvalue %Cell %record, 9
  %layout = extractvalue %Cell %record, 10
  %known.impl = getelementptr %Cell, ptr %cell, i32 0, i32 3
  %out = alloca i64
  %strides.out = alloca ptr
  %its.object = call ptr @PyTuple_GetItem(ptr %arguments, i64 %argument)
  %same.object = icmp eq ptr %its.object, %object
  br i1 %same.object, label %ask.impl, label %changed

ask.impl:                                                   ; another object could have its place,
  %is.told = icmp eq i64 %impl.offset, 0                    ; and another TensorImpl be in it
  br i1 %is.told, label %tensor.known, label %ask.type

ask.type:
  %type.at = getelementptr i8, ptr %object, i64 8
  %its.type = load ptr, ptr %type.at
  %same.type = icmp eq ptr %its.type, %type
  br i1 %same.type, label %ask.handle, label %changed

ask.handle:
  %handle = getelementptr i8, ptr %object, i64 %impl.offset
  %its.impl = load ptr, ptr %handle
  %same.impl = icmp eq ptr %its.impl, %impl
  br i1 %same.impl, label %tensor.known, label %changed

tensor.known:
  %tensor = phi ptr [ %known.impl, %ask.impl ], [ %handle, %ask.handle ]
  br label %ask.data

ask.data:
  %e1 = call i32 @aoti_torch_get_data_ptr(ptr %tensor, ptr %out)
  %its.data = load ptr, ptr %out
  %same.data = icmp eq ptr %its.data, %data
  br i1 %same.data, label %ask.rank, label %changed

ask.rank:
  %e2 = call i32 @aoti_torch_get_dim(ptr %tensor, ptr %out)
  %its.rank = load i64, ptr %out
  %same.rank = icmp eq i64 %its.rank, %rank
  br i1 %same.rank, label %ask.dtype, label %changed

ask.dtype:
  %e3 = call i32 @aoti_torch_get_dtype(ptr %tensor, ptr %out)
  %its.dtype.32 = load i32, ptr %out
  %its.dtype = sext i32 %its.dtype.32 to i64
  %same.dtype = icmp eq i64 %its.dtype, %dtype
  br i1 %same.dtype, label %ask.sizes, label %changed

ask.sizes:
  %e4 = call i32 @aoti_torch_get_sizes(ptr %tensor, ptr %out)
  %e5 = call i32 @aoti_torch_get_strides(ptr %tensor, ptr %strides.out)
  %errors.12 = or i32 %e1, %e2
  %errors.123 = or i32 %errors.12, %e3
  %errors.1234 = or i32 %errors.123, %e4
  %errors = or i32 %errors.1234, %e5
  %no.error = icmp eq i32 %errors, 0
  br i1 %no.error, label %compare, label %changed

compare:
  %sizes = load ptr, ptr %out
  %strides = load ptr, ptr %strides.out
  %bytes = mul i64 %rank, 8
  %layout.strides = getelementptr i64, ptr %layout, i64 %rank
  %sizes.order = call i32 @memcmp(ptr %sizes, ptr %layout, i64 %bytes)
  %strides.order = call i32 @memcmp(ptr %strides, ptr %layout.strides, i64 %bytes)
  %order = or i32 %sizes.order, %strides.order
  %alike = icmp eq i32 %order, 0
  br i1 %alike, label %ask.inference, label %changed

ask.inference:                                              ; asking those for a version is an error
  %its.inference = call zeroext i1 @_ZN2at6native12is_inferenceERKNS_6TensorE(ptr %tensor)
  %inference = icmp ne i64 %inference.word, 0
  %other.kind = xor i1 %its.inference, %inference
  br i1 %other.kind, label %changed, label %may.ask

may.ask:
  %versioned = icmp ne i64 %versioned.word, 0
  br i1 %versioned, label %ask.version, label %contents

ask.version:
  %its.version = call i64 @_ZNK2at10TensorBase8_versionEv(ptr %tensor)
  %same.version = icmp eq i64 %its.version, %version
  br i1 %same.version, label %contents, label %changed

contents:
  %same.contents = call i1 @same_contents(ptr %cell)
  ret i1 %same.contents

changed:
  ret i1 false
}

; Whether all that is compared of the contents of a long-lived argument is as it was.
define internal i1 @same_contents(ptr %cell) {
entry:
  %record = load %Cell, ptr %cell
  %data = extractvalue %Cell %record, 4
  %pieces = extractvalue %Cell %record, 13
  %piece.bytes = extractvalue %Cell %record, 14
  %pitch = extractvalue %Cell %record, 15
  %contents = extractvalue %Cell %record, 16
  %written.at = extractvalue %Cell %record, 17
  %written = extractvalue %Cell %record, 18
  %digest.bytes = extractvalue %Cell %record, 19
  %digest = extractvalue %Cell %record, 20
  br label %piece.head

piece.head:
  %piece = phi i64 [ 0, %entry ], [ %piece.next, %piece.same ]
  %piece.more = icmp ult i64 %piece, %pieces
  br i1 %piece.more, label %piece.compare, label %written.any

piece.compare:
  %its.offset = mul i64 %piece, %pitch
  %its.piece = getelementptr i8, ptr %data, i64 %its.offset
  %known.offset = mul i64 %piece, %piece.bytes
  %known.piece = getelementptr i8, ptr %contents, i64 %known.offset
  %piece.order = call i32 @memcmp(ptr %its.piece, ptr %known.piece, i64 %piece.bytes)
  %piece.equal = icmp eq i32 %piece.order, 0
  br i1 %piece.equal, label %piece.same, label %changed

piece.same:
  %piece.next = add i64 %piece, 1
  br label %piece.head

written.any:
  %counted = icmp ne ptr %written.at, null
  br i1 %counted, label %written.compare, label %digest.any

written.compare:
  %its.written = load atomic i64, ptr %written.at acquire, align 8
  %unwritten = icmp eq i64 %its.written, %written
  br i1 %unwritten, label %digest.any, label %changed

digest.any:
  %digested = icmp ne i64 %digest.bytes, 0
  br i1 %digested, label %digest.compare, label %same

digest.compare:
  %its.digest = call i64 @digest(ptr %data, i64 %digest.bytes)
  %same.digest = icmp eq i64 %its.digest, %digest
  br i1 %same.digest, label %same, label %changed

same:
  ret i1 true

changed:
  ret i1 false
}

; A number for the contents of memory: any other bytes at any place make another one, but for a
; chance of 2^-64. Sixteen lanes of 64 bits, each turned and multiplied after every word, so that no
; two changes that follow from each other, such as two signs, take each other back.
define internal i64 @digest(ptr %data, i64 %bytes) {
entry:
  %last = alloca [128 x i8]
  %lanes.at = alloca <16 x i64>
  %zeroed = call ptr @memset(ptr %last, i32 0, i64 128)
  %blocks = udiv i64 %bytes, 128
  %whole = mul i64 %blocks, 128
  %rest = sub i64 %bytes, %whole
  %rest.at = getelementptr i8, ptr %data, i64 %whole
  %copied = call ptr @memcpy(ptr %last, ptr %rest.at, i64 %rest)
  br label %head

head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %block ]
  %lanes = phi <16 x i64> [ <i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10,
                             i64 11, i64 12, i64 13, i64 14, i64 15, i64 16>, %entry ],
                          [ %lanes.next, %block ]
  %more = icmp ule i64 %i, %blocks                          ; and once for what is left
  br i1 %more, label %block, label %join

block:
  %inside = icmp ult i64 %i, %blocks
  %offset = mul i64 %i, 128
  %block.at = getelementptr i8, ptr %data, i64 %offset
  %from = select i1 %inside, ptr %block.at, ptr %last
  %words = load <16 x i64>, ptr %from, align 1
  %mixed = xor <16 x i64> %lanes, %words
  %scaled = mul <16 x i64> %mixed, splat (i64 -7046029288634856825)
  %left = shl <16 x i64> %scaled, splat (i64 29)
  %right = lshr <16 x i64> %scaled, splat (i64 35)
  %lanes.next = or <16 x i64> %left, %right
  %i.next = add i64 %i, 1
  br label %head

join:
  store <16 x i64> %lanes, ptr %lanes.at
  br label %join.head

join.head:
  %n = phi i64 [ 0, %join ], [ %n.next, %join.lane ]
  %sum = phi i64 [ %bytes, %join ], [ %sum.next, %join.lane ]
  %n.more = icmp ult i64 %n, 16
  br i1 %n.more, label %join.lane, label %joined

join.lane:
  %lane.at = getelementptr i64, ptr %lanes.at, i64 %n
  %lane = load i64, ptr %lane.at
  %sum.mixed = xor i64 %sum, %lane
  %sum.scaled = mul i64 %sum.mixed, -7046029288634856825
  %sum.left = shl i64 %sum.scaled, 31
  %sum.right = lshr i64 %sum.scaled, 33
  %sum.next = or i64 %sum.left, %sum.right
  %n.next = add i64 %n, 1
  br label %join.head

joined:
  ret i64 %sum
}

; Whether none of the pages that a binding watches was written since they were last protected.
define internal i1 @unwritten(ptr %binding) {
entry:
  %table = load %Binding, ptr %binding
  %watch = extractvalue %Binding %table, 5
  %count = extractvalue %Binding %table, 6
  %pages = extractvalue %Binding %table, 7
  %scan = alloca %Scan
  %region = alloca [3 x i64]
  %any = icmp ne i64 %count, 0
  br i1 %any, label %begin, label %clean

begin:
  %pagemap = load i64, ptr %watch
  %pagemap.32 = trunc i64 %pagemap to i32
  br label %head

head:
  %i = phi i64 [ 0, %begin ], [ %i.next, %good ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %scanned

look:
  %pages.at = getelementptr %Pages, ptr %pages, i64 %i
  %first = load i64, ptr %pages.at
  %last.at = getelementptr %Pages, ptr %pages.at, i32 0, i32 1
  %last = load i64, ptr %last.at
  %s0 = insertvalue %Scan { i64 96, i64 2, i64 0, i64 0, i64 0, ptr null, i64 1, i64 1, i64 0, i64 2,
                            i64 0, i64 2 }, i64 %first, 2   ; PM_SCAN_CHECK_WPASYNC, written pages,
  %s1 = insertvalue %Scan %s0, i64 %last, 3                 ; one is enough
  %s2 = insertvalue %Scan %s1, ptr %region, 5
  store %Scan %s2, ptr %scan
  %found = call i32 (i32, i64, ...) @ioctl(i32 %pagemap.32, i64 3227543056, ptr %scan)
  %none = icmp eq i32 %found, 0
  br i1 %none, label %good, label %written                  ; so is an error

good:
  %i.next = add i64 %i, 1
  br label %head

scanned:                                                    ; what somebody takes meanwhile is not
  %busy.at = getelementptr %Writes, ptr %watch, i32 0, i32 1    ; found, and not yet in the cells
  %busy = load atomic i64, ptr %busy.at acquire, align 8
  %calm = icmp eq i64 %busy, 0
  ret i1 %calm

clean:
  ret i1 true

written:
  ret i1 false
}

; Whether the edges that a binding compares are as they were.
define internal i1 @same_edges(ptr %binding) {
entry:
  %table = load %Binding, ptr %binding
  %count = extractvalue %Binding %table, 8
  %edges = extractvalue %Binding %table, 9
  br label %head

head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %same ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %compare, label %all

compare:
  %edge.at = getelementptr %Edge, ptr %edges, i64 %i
  %edge = load %Edge, ptr %edge.at
  %address = extractvalue %Edge %edge, 0
  %bytes = extractvalue %Edge %edge, 1
  %contents = extractvalue %Edge %edge, 2
  %order = call i32 @memcmp(ptr %address, ptr %contents, i64 %bytes)
  %equal = icmp eq i32 %order, 0
  br i1 %equal, label %same, label %changed

same:
  %i.next = add i64 %i, 1
  br label %head

all:
  ret i1 true

changed:
  ret i1 false
}

; Checks every argument of a call, then fills in the address of every buffer but the outputs.
define internal i64 @admit(ptr %frame, ptr %binding, ptr %arguments, ptr %tensors) {
entry:
  %table = load ptr, ptr %frame
  %values.at = getelementptr %Frame, ptr %frame, i32 0, i32 1
  %values = load ptr, ptr %values.at
  %addresses = getelementptr %Frame, ptr %frame, i32 0, i32 10
  %input.count = load i64, ptr %table
  %inputs.at = getelementptr %Table, ptr %table, i32 0, i32 1
  %inputs = load ptr, ptr %inputs.at
  br label %input.head

input.head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %input.good ]
  %i.more = icmp ult i64 %i, %input.count
  br i1 %i.more, label %input, label %cells

input:
  %input.at = getelementptr %Input, ptr %inputs, i64 %i
  %any = getelementptr %Any, ptr %tensors, i64 %i
  %checked = call { ptr, i1 } @check_tensor(ptr %input.at, ptr %values, ptr %any)
  %data = extractvalue { ptr, i1 } %checked, 0
  %fits = extractvalue { ptr, i1 } %checked, 1
  br i1 %fits, label %input.good, label %input.bad

input.good:
  %input.buffer = load i64, ptr %input.at
  %input.slot = getelementptr ptr, ptr %addresses, i64 %input.buffer
  store ptr %data, ptr %input.slot
  %i.next = add i64 %i, 1
  br label %input.head

input.bad:
  %input.code = xor i64 %i, -1
  ret i64 %input.code

cells:
  %code = call i64 @admit_bound(ptr %frame, ptr %binding, ptr %arguments)
  ret i64 %code
}

; The second half of @admit: long-lived arguments, and the addresses of packed and arena buffers.
define internal i64 @admit_bound(ptr %frame, ptr %binding, ptr %arguments) {
entry:
  %table = load ptr, ptr %frame
  %values.at = getelementptr %Frame, ptr %frame, i32 0, i32 1
  %values = load ptr, ptr %values.at
  %addresses = getelementptr %Frame, ptr %frame, i32 0, i32 10
  %input.count = load i64, ptr %table
  %bound = icmp ne ptr %binding, null
  br i1 %bound, label %cells.any, label %arena

cells.any:
  %unwritten = call i1 @unwritten(ptr %binding)             ; before cells: see @unwritten
  br i1 %unwritten, label %cells.unwritten, label %written

written:
  %written.code = xor i64 %input.count, -1
  ret i64 %written.code

cells.unwritten:
  %cell.count = load i64, ptr %binding
  %impl.offset.at = getelementptr %Binding, ptr %binding, i32 0, i32 4
  %impl.offset = load i64, ptr %impl.offset.at
  %cells.at = getelementptr %Binding, ptr %binding, i32 0, i32 1
  %cell.records = load ptr, ptr %cells.at
  br label %cell.head

cell.head:
  %c = phi i64 [ 0, %cells.unwritten ], [ %c.next, %cell.good ]
  %c.more = icmp ult i64 %c, %cell.count
  br i1 %c.more, label %cell, label %edges

cell:
  %ahead.any = add i64 %c, 2
  %cell.last = sub i64 %cell.count, 1
  %ahead = call i64 @llvm.smin.i64(i64 %ahead.any, i64 %cell.last)
  %ahead.at = getelementptr %Cell, ptr %cell.records, i64 %ahead
  call void @fetch_cell(ptr %ahead.at)
  %cell.at = getelementptr %Cell, ptr %cell.records, i64 %c
  %same = call i1 @check_cell(ptr %cell.at, ptr %arguments, i64 %impl.offset)
  br i1 %same, label %cell.good, label %cell.bad

cell.good:
  %cell.buffer.at = getelementptr %Cell, ptr %cell.at, i32 0, i32 11
  %cell.buffer = load i64, ptr %cell.buffer.at
  %cell.address.at = getelementptr %Cell, ptr %cell.at, i32 0, i32 12
  %cell.address = load ptr, ptr %cell.address.at
  %cell.slot = getelementptr ptr, ptr %addresses, i64 %cell.buffer
  store ptr %cell.address, ptr %cell.slot
  %c.next = add i64 %c, 1
  br label %cell.head

cell.bad:
  %cell.number = add i64 %c, %input.count
  %cell.code = xor i64 %cell.number, -1
  ret i64 %cell.code

edges:                                                      ; in memory that the cells have proved
  %same.edges = call i1 @same_edges(ptr %binding)
  br i1 %same.edges, label %packed, label %written

packed:
  %packed.count.at = getelementptr %Binding, ptr %binding, i32 0, i32 2
  %packed.count = load i64, ptr %packed.count.at
  %packed.at = getelementptr %Binding, ptr %binding, i32 0, i32 3
  %packed.records = load ptr, ptr %packed.at
  br label %packed.head

packed.head:
  %p = phi i64 [ 0, %packed ], [ %p.next, %packed.one ]
  %p.more = icmp ult i64 %p, %packed.count
  br i1 %p.more, label %packed.one, label %arena

packed.one:
  %packed.record.at = getelementptr %Packed, ptr %packed.records, i64 %p
  %packed.record = load %Packed, ptr %packed.record.at
  %packed.buffer = extractvalue %Packed %packed.record, 0
  %packed.address = extractvalue %Packed %packed.record, 1
  %packed.slot = getelementptr ptr, ptr %addresses, i64 %packed.buffer
  store ptr %packed.address, ptr %packed.slot
  %p.next = add i64 %p, 1
  br label %packed.head

arena:
  %arena.base.at = getelementptr %Frame, ptr %frame, i32 0, i32 2
  %arena.base = load ptr, ptr %arena.base.at
  %arena.count.at = getelementptr %Table, ptr %table, i32 0, i32 4
  %arena.count = load i64, ptr %arena.count.at
  %arena.records.at = getelementptr %Table, ptr %table, i32 0, i32 5
  %arena.records = load ptr, ptr %arena.records.at
  br label %arena.head

arena.head:
  %a = phi i64 [ 0, %arena ], [ %a.next, %arena.one ]
  %a.more = icmp ult i64 %a, %arena.count
  br i1 %a.more, label %arena.one, label %admitted

arena.one:
  %arena.record.at = getelementptr %Arena, ptr %arena.records, i64 %a
  %arena.record = load %Arena, ptr %arena.record.at
  %arena.buffer = extractvalue %Arena %arena.record, 0
  %arena.offset.number = extractvalue %Arena %arena.record, 1
  %arena.offset.at = getelementptr i64, ptr %values, i64 %arena.offset.number
  %arena.offset = load i64, ptr %arena.offset.at
  %arena.address = getelementptr i8, ptr %arena.base, i64 %arena.offset
  %arena.slot = getelementptr ptr, ptr %addresses, i64 %arena.buffer
  store ptr %arena.address, ptr %arena.slot
  %a.next = add i64 %a, 1
  br label %arena.head

admitted:
  %calls.at = getelementptr %Frame, ptr %frame, i32 0, i32 6
  %calls = load i64, ptr %calls.at
  %calls.next = add i64 %calls, 1
  store i64 %calls.next, ptr %calls.at
  %status.at = getelementptr %Frame, ptr %frame, i32 0, i32 7
  store i64 0, ptr %status.at
  ret i64 0
}

; ---- packed functions ----------------------------------------------------------------------------

define internal ptr @pointer_argument(ptr %args, i64 %number) {
  %at = getelementptr %Any, ptr %args, i64 %number, i32 2
  %value = load ptr, ptr %at
  ret ptr %value
}

define internal void @give(ptr %result, i64 %code) {
  %any = insertvalue %Any { i32 1, i32 0, i64 0 }, i64 %code, 2    ; kTVMFFIInt
  store %Any %any, ptr %result
  ret void
}

; km_admit(frame, binding, arguments, tensor...): checks only, for programs with ATen steps.
define i32 @km_admit(ptr %self, ptr %args, i32 %count, ptr %result) {
  %frame = call ptr @pointer_argument(ptr %args, i64 0)
  %binding = call ptr @pointer_argument(ptr %args, i64 1)
  %arguments = call ptr @pointer_argument(ptr %args, i64 2)
  %tensors = getelementptr %Any, ptr %args, i64 3
  %code = call i64 @admit(ptr %frame, ptr %binding, ptr %arguments, ptr %tensors)
  call void @give(ptr %result, i64 %code)
  ret i32 0
}

; km_launch(frame, first, last): a run of launches whose addresses are in the frame.
define i32 @km_launch(ptr %self, ptr %args, i32 %count, ptr %result) {
  %frame = call ptr @pointer_argument(ptr %args, i64 0)
  %first.at = getelementptr %Any, ptr %args, i64 1, i32 2
  %first = load i64, ptr %first.at
  %last.at = getelementptr %Any, ptr %args, i64 2, i32 2
  %last = load i64, ptr %last.at
  call void @run(ptr %frame, i64 %first, i64 %last)
  %status.at = getelementptr %Frame, ptr %frame, i32 0, i32 7
  %status = load i64, ptr %status.at
  call void @give(ptr %result, i64 %status)
  ret i32 0
}

; km_call(frame, binding, arguments, tensor..., output...): a whole call of a program without ATen.
define i32 @km_call(ptr %self, ptr %args, i32 %count, ptr %result) {
entry:
  %frame = call ptr @pointer_argument(ptr %args, i64 0)
  %binding = call ptr @pointer_argument(ptr %args, i64 1)
  %arguments = call ptr @pointer_argument(ptr %args, i64 2)
  %tensors = getelementptr %Any, ptr %args, i64 3
  %code = call i64 @admit(ptr %frame, ptr %binding, ptr %arguments, ptr %tensors)
  %admitted = icmp eq i64 %code, 0
  br i1 %admitted, label %outputs, label %refused

refused:
  call void @give(ptr %result, i64 %code)
  ret i32 0

outputs:
  %outputs.at = getelementptr %Any, ptr %args, i64 3
  %table = load ptr, ptr %frame
  %input.count = load i64, ptr %table
  %own = getelementptr %Any, ptr %outputs.at, i64 %input.count
  %launches = call i64 @place(ptr %frame, ptr %own)
  call void @run(ptr %frame, i64 0, i64 %launches)
  %status.at = getelementptr %Frame, ptr %frame, i32 0, i32 7
  %status = load i64, ptr %status.at
  call void @give(ptr %result, i64 %status)
  ret i32 0
}

; Puts the addresses of output tensors into the frame; gives the number of launches.
define internal i64 @place(ptr %frame, ptr %outputs) {
entry:
  %table = load ptr, ptr %frame
  %addresses = getelementptr %Frame, ptr %frame, i32 0, i32 10
  %output.count.at = getelementptr %Table, ptr %table, i32 0, i32 2
  %output.count = load i64, ptr %output.count.at
  %output.numbers.at = getelementptr %Table, ptr %table, i32 0, i32 3
  %output.numbers = load ptr, ptr %output.numbers.at
  %launch.count.at = getelementptr %Table, ptr %table, i32 0, i32 6
  %launch.count = load i64, ptr %launch.count.at
  br label %output.head

output.head:
  %o = phi i64 [ 0, %entry ], [ %o.next, %output ]
  %o.more = icmp ult i64 %o, %output.count
  br i1 %o.more, label %output, label %ready

output:
  %object.at = getelementptr %Any, ptr %outputs, i64 %o, i32 2
  %object = load ptr, ptr %object.at
  %data.at = getelementptr i8, ptr %object, i64 24          ; the tensor was made for this call
  %data = load ptr, ptr %data.at
  %number.at = getelementptr i64, ptr %output.numbers, i64 %o
  %number = load i64, ptr %number.at
  %slot = getelementptr ptr, ptr %addresses, i64 %number
  store ptr %data, ptr %slot
  %o.next = add i64 %o, 1
  br label %output.head

ready:
  ret i64 %launch.count
}

; ---- calls of saved programs: what is checked is a table too -------------------------------------
;
; The caller holds Python's lock. Objects of Python are read where CPython keeps them: their type
; behind the count of references, sizes behind that, then a tuple's items or a list's pointer to
; them; a dict has a version there, which is another after every change. quick.py makes sure of it.

; The settings of torch and of this thread as one word: autocast, determinism, gradients, function
; modes, dispatch modes; the default dtype from bit 8, autocast's from 16, how exactly float32 is
; computed from 24, how the processor computes from 32. quick.py has the masks.
define internal i64 @settings() {
  %autocast.1 = call zeroext i1 @_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE(i8 signext 0)
  %context = call ptr @_ZN2at13globalContextEv()
  %deterministic.1 = call zeroext i1 @_ZNK2at7Context23deterministicAlgorithmsEv(ptr %context)
  %gradients.1 = call zeroext i1 @_ZN3c108GradMode10is_enabledEv()
  %functions.64 = call i64 @_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv()
  %dispatches.64 = call i64 @_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv()
  %functions.1 = icmp ne i64 %functions.64, 0
  %dispatches.1 = icmp ne i64 %dispatches.64, 0
  %dtype.8 = call signext i8 @_ZN3c1031get_default_dtype_as_scalartypeEv()
  %autocast.8 = call signext i8 @_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE(i8 signext 0)
  %convolutions = call i64 @precision(ptr %context, i32 1)
  %recurrences = call i64 @precision(ptr %context, i32 2)
  %products = call i64 @precision(ptr %context, i32 3)
  %floats = call i64 @float_mode()
  %bit.0 = zext i1 %autocast.1 to i64
  %bit.1 = call i64 @bit(i1 %deterministic.1, i64 1)
  %bit.2 = call i64 @bit(i1 %gradients.1, i64 2)
  %bit.3 = call i64 @bit(i1 %functions.1, i64 3)
  %bit.4 = call i64 @bit(i1 %dispatches.1, i64 4)
  %dtype.64 = zext i8 %dtype.8 to i64
  %dtype = shl i64 %dtype.64, 8
  %autocast.64 = zext i8 %autocast.8 to i64
  %autocast = shl i64 %autocast.64, 16
  %exact.2 = shl i64 %recurrences, 2
  %exact.4 = shl i64 %products, 4
  %exact.24 = or i64 %exact.2, %exact.4
  %exact = or i64 %exact.24, %convolutions
  %exactly = shl i64 %exact, 24
  %floating = shl i64 %floats, 32
  %or.1 = or i64 %bit.0, %bit.1
  %or.2 = or i64 %bit.2, %bit.3
  %or.3 = or i64 %bit.4, %dtype
  %or.4 = or i64 %autocast, %exactly
  %or.5 = or i64 %or.1, %or.2
  %or.6 = or i64 %or.3, %or.4
  %or.7 = or i64 %or.5, %or.6
  %word = or i64 %or.7, %floating
  ret i64 %word
}

define internal i64 @bit(i1 %set, i64 %number) {
  %one = zext i1 %set to i64
  %bit = shl i64 %one, %number
  ret i64 %bit
}

; How exactly oneDNN (backend 2) computes float32 in some operators, 2 bits: 0 is exactly, said so
; or not, 2 TF32, 3 bfloat16.
define internal i64 @precision(ptr %context, i32 %operators) {
  %found = call i32 @_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE(
      ptr %context, i32 2, i32 %operators)
  %lower = icmp sgt i32 %found, 1
  %some = select i1 %lower, i32 %found, i32 0
  %two = and i32 %some, 3
  %bits = zext i32 %two to i64
  ret i64 %bits
}

; The bits of MXCSR that change results: flush to zero, rounding, denormals are zeros. It is the upper
; half of what fegetmode writes on x86-64.
define internal i64 @float_mode() {
  %mode = alloca i64
  store i64 0, ptr %mode
  %e = call i32 @fegetmode(ptr %mode)
  %both = load i64, ptr %mode
  %mxcsr = lshr i64 %both, 32
  %bits = and i64 %mxcsr, 57408                              ; 0xE040
  ret i64 %bits
}

; Whether all that these records watch is as it was. What they look at lies far apart and has been
; out of the caches since the last call: it is asked for some records ahead.
define internal i1 @unmoved(ptr %records, i64 %count) {
entry:
  %last = sub i64 %count, 1
  br label %head

head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %same ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %all

look:
  %ahead.any = add i64 %i, 16
  %ahead = call i64 @llvm.smin.i64(i64 %ahead.any, i64 %last)
  %ahead.owner.at = getelementptr %Watch, ptr %records, i64 %ahead, i32 1
  %ahead.owner = load ptr, ptr %ahead.owner.at
  %ahead.size.at = getelementptr i8, ptr %ahead.owner, i64 16
  call void @llvm.prefetch.p0(ptr %ahead.size.at, i32 0, i32 3, i32 1)
  %record.at = getelementptr %Watch, ptr %records, i64 %i
  %record = load %Watch, ptr %record.at
  %kind = extractvalue %Watch %record, 0
  %owner = extractvalue %Watch %record, 1
  %key = extractvalue %Watch %record, 2
  %number = extractvalue %Watch %record, 3
  %expected = extractvalue %Watch %record, 4
  switch i64 %kind, label %moved [
    i64 0, label %word
    i64 1, label %word
    i64 2, label %dict.item
    i64 3, label %list.item
  ]

word:
  %word.at = getelementptr i8, ptr %owner, i64 %number
  %its.word = load i64, ptr %word.at
  br label %compare

dict.item:
  %its.item = call ptr @_PyDict_GetItem_KnownHash(ptr %owner, ptr %key, i64 %number)
  %its.item.bits = ptrtoint ptr %its.item to i64
  br label %compare

list.item:
  %length.at = getelementptr i8, ptr %owner, i64 16
  %length = load i64, ptr %length.at
  %inside = icmp ult i64 %number, %length
  br i1 %inside, label %list.read, label %moved

list.read:
  %items.at = getelementptr i8, ptr %owner, i64 24
  %items = load ptr, ptr %items.at
  %element.at = getelementptr i64, ptr %items, i64 %number
  %element = load i64, ptr %element.at
  br label %compare

compare:
  %now = phi i64 [ %its.word, %word ], [ %its.item.bits, %dict.item ], [ %element, %list.read ]
  %equal = icmp eq i64 %now, %expected
  br i1 %equal, label %same, label %moved

same:
  %i.next = add i64 %i, 1
  br label %head

all:
  ret i1 true

moved:
  ret i1 false
}

; Whether all that is watched outside of the arguments is as it was.
define internal i1 @unmoved.all(ptr %quick) {
  %count.at = getelementptr %Quick, ptr %quick, i32 0, i32 1
  %count = load i64, ptr %count.at
  %records.at = getelementptr %Quick, ptr %quick, i32 0, i32 2
  %records = load ptr, ptr %records.at
  %unmoved = call i1 @unmoved(ptr %records, i64 %count)
  ret i1 %unmoved
}

; What an object's own __dict__ has under a name, whose hash is given; null for nothing.
define internal ptr @attribute(ptr %object, ptr %name, i64 %hash) {
entry:
  %dict.at = call ptr @_PyObject_GetDictPtr(ptr %object)
  %no.place = icmp eq ptr %dict.at, null
  br i1 %no.place, label %nothing, label %place

place:
  %dict = load ptr, ptr %dict.at
  %no.dict = icmp eq ptr %dict, null
  br i1 %no.dict, label %nothing, label %look

look:
  %value = call ptr @_PyDict_GetItem_KnownHash(ptr %dict, ptr %name, i64 %hash)
  ret ptr %value

nothing:
  ret ptr null
}

; Takes a call's values apart into registers, as the steps say. Gives 0, or the code of km_quick when
; something is otherwise.
define internal i64 @unpack(ptr %quick, ptr %registers, ptr %values) {
entry:
  %count.at = getelementptr %Quick, ptr %quick, i32 0, i32 3
  %count = load i64, ptr %count.at
  %steps.at = getelementptr %Quick, ptr %quick, i32 0, i32 4
  %steps = load ptr, ptr %steps.at
  %position = alloca i64
  %its.key.at = alloca ptr
  %overflow.at = alloca i32
  br label %head

head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %good ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %step, label %all

step:
  %step.at = getelementptr %Step, ptr %steps, i64 %i
  %record = load %Step, ptr %step.at
  %operation = extractvalue %Step %record, 0
  %source = extractvalue %Step %record, 1
  %operand = extractvalue %Step %record, 2
  %length = extractvalue %Step %record, 3
  %target = extractvalue %Step %record, 4
  %object.at = getelementptr ptr, ptr %registers, i64 %source
  %object = load ptr, ptr %object.at
  %targets = getelementptr ptr, ptr %registers, i64 %target
  %size.at = getelementptr i8, ptr %object, i64 16
  %inner = getelementptr i8, ptr %object, i64 24
  switch i64 %operation, label %wrong [
    i64 0, label %type
    i64 1, label %identity
    i64 2, label %tuple
    i64 3, label %list
    i64 4, label %dict
    i64 5, label %integer
    i64 6, label %watched
    i64 7, label %field
    i64 8, label %attribute
    i64 9, label %absent
    i64 10, label %equal
  ]

type:
  %type.at = getelementptr i8, ptr %object, i64 8
  %its.type = load ptr, ptr %type.at
  %same.type = icmp eq ptr %its.type, %operand
  br i1 %same.type, label %good, label %wrong

identity:
  %identical = icmp eq ptr %object, %operand
  br i1 %identical, label %good, label %wrong

integer:
  %its.value = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow.at)
  %overflow = load i32, ptr %overflow.at
  %value.at = getelementptr i64, ptr %values, i64 %length
  %value = load i64, ptr %value.at
  %same.value = icmp eq i64 %its.value, %value
  %no.overflow = icmp eq i32 %overflow, 0
  %right.value = and i1 %same.value, %no.overflow
  br i1 %right.value, label %good, label %different

watched:
  %unmoved = call i1 @unmoved(ptr %operand, i64 %length)
  br i1 %unmoved, label %good, label %wrong

field:
  %its.field = load i64, ptr %size.at
  %mask = ptrtoint ptr %operand to i64
  %its.bits = and i64 %its.field, %mask
  %same.bits = icmp eq i64 %its.bits, %target
  br i1 %same.bits, label %good, label %wrong

attribute:
  %attribute.value = call ptr @attribute(ptr %object, ptr %operand, i64 %length)
  store ptr %attribute.value, ptr %targets
  %no.attribute = icmp eq ptr %attribute.value, null
  br i1 %no.attribute, label %wrong, label %good

absent:
  %unwanted = call ptr @attribute(ptr %object, ptr %operand, i64 %length)
  %is.absent = icmp eq ptr %unwanted, null
  br i1 %is.absent, label %good, label %wrong

equal:
  %its.number = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow.at)
  %too.large = load i32, ptr %overflow.at
  %same.number = icmp eq i64 %its.number, %target
  %not.large = icmp eq i32 %too.large, 0
  %right.number = and i1 %same.number, %not.large
  br i1 %right.number, label %good, label %wrong

tuple:
  %tuple.size = load i64, ptr %size.at
  %same.tuple.size = icmp eq i64 %tuple.size, %length
  br i1 %same.tuple.size, label %item.head, label %wrong

list:
  %list.size = load i64, ptr %size.at
  %same.list.size = icmp eq i64 %list.size, %length
  %list.items = load ptr, ptr %inner
  br i1 %same.list.size, label %item.head, label %wrong

item.head:
  %items = phi ptr [ %inner, %tuple ], [ %list.items, %list ], [ %items, %item ]
  %n = phi i64 [ 0, %tuple ], [ 0, %list ], [ %n.next, %item ]
  %n.more = icmp ult i64 %n, %length
  br i1 %n.more, label %item, label %good

item:
  %item.from = getelementptr ptr, ptr %items, i64 %n
  %item.value = load ptr, ptr %item.from
  %item.to = getelementptr ptr, ptr %targets, i64 %n
  store ptr %item.value, ptr %item.to
  %n.next = add i64 %n, 1
  br label %item.head

dict:
  %dict.size = load i64, ptr %size.at
  %same.dict.size = icmp eq i64 %dict.size, %length
  store i64 0, ptr %position
  br i1 %same.dict.size, label %entry.head, label %wrong

entry.head:
  %e = phi i64 [ 0, %dict ], [ %e.next, %entry.same ]
  %e.more = icmp ult i64 %e, %length
  br i1 %e.more, label %entry.next, label %good

entry.next:
  %entry.to = getelementptr ptr, ptr %targets, i64 %e
  %there = call i32 @PyDict_Next(ptr %object, ptr %position, ptr %its.key.at, ptr %entry.to)
  %is.there = icmp ne i32 %there, 0
  br i1 %is.there, label %entry.key, label %wrong

entry.key:
  %its.key = load ptr, ptr %its.key.at
  %key.at = getelementptr ptr, ptr %operand, i64 %e
  %key = load ptr, ptr %key.at
  %same.key = icmp eq ptr %its.key, %key
  br i1 %same.key, label %entry.same, label %wrong

entry.same:
  %e.next = add i64 %e, 1
  br label %entry.head

good:
  %i.next = add i64 %i, 1
  br label %head

all:
  ret i64 0

different:
  ret i64 -4

wrong:
  ret i64 -3
}

; @check_tensor for an object of Python. %scalar is the number of its dtype in torch.
define internal { ptr, i1 } @check_object(ptr %quick, ptr %input, ptr %values, ptr %object,
                                          i64 %scalar) {
entry:
  %q = load %Quick, ptr %quick
  %tensor.type = extractvalue %Quick %q, 10
  %parameter.type = extractvalue %Quick %q, 11
  %offset = extractvalue %Quick %q, 12
  %record = load %Input, ptr %input
  %rank = extractvalue %Input %record, 1
  %misaligned = extractvalue %Input %record, 3
  %dims = extractvalue %Input %record, 4
  %number = alloca i64
  %pointer = alloca ptr
  %type.at = getelementptr i8, ptr %object, i64 8
  %type = load ptr, ptr %type.at
  %is.tensor = icmp eq ptr %type, %tensor.type
  %is.parameter = icmp eq ptr %type, %parameter.type
  %is.plain = or i1 %is.tensor, %is.parameter
  br i1 %is.plain, label %plain, label %wrong

plain:
  %handle = getelementptr i8, ptr %object, i64 %offset      ; a TensorImpl*, as torch's shims want it
  %impl = load ptr, ptr %handle
  %is.defined = icmp ne ptr %impl, null
  br i1 %is.defined, label %defined, label %wrong

defined:
  %negated = call zeroext i1 @_ZN2at6native6is_negERKNS_6TensorE(ptr %handle)
  store i64 0, ptr %number
  %e1 = call i32 @aoti_torch_get_device_type(ptr %handle, ptr %number)
  %device = load i64, ptr %number                           ; 0 is the CPU
  store i64 0, ptr %number
  %e2 = call i32 @aoti_torch_get_layout(ptr %handle, ptr %number)
  %layout = load i64, ptr %number                           ; 0 is strided
  %elsewhere = or i64 %device, %layout
  store i64 0, ptr %number
  %e3 = call i32 @aoti_torch_get_dtype(ptr %handle, ptr %number)
  %its.scalar = load i64, ptr %number
  %same.dtype = icmp eq i64 %its.scalar, %scalar
  %e4 = call i32 @aoti_torch_get_dim(ptr %handle, ptr %number)
  %its.rank = load i64, ptr %number
  %same.rank = icmp eq i64 %its.rank, %rank
  %is.near = icmp eq i64 %elsewhere, 0
  %not.negated = xor i1 %negated, true
  %ok.1 = and i1 %is.near, %not.negated
  %ok.2 = and i1 %same.dtype, %same.rank
  %ok.3 = and i1 %ok.1, %ok.2
  br i1 %ok.3, label %near, label %wrong

near:
  %e5 = call i32 @aoti_torch_get_data_ptr(ptr %handle, ptr %pointer)
  %data = load ptr, ptr %pointer
  %no.data = icmp ne i32 %e5, 0
  br i1 %no.data, label %wrong, label %dense

dense:
  %e6 = call i32 @aoti_torch_get_sizes(ptr %handle, ptr %pointer)
  %shape = load ptr, ptr %pointer
  %e7 = call i32 @aoti_torch_get_strides(ptr %handle, ptr %pointer)
  %strides = load ptr, ptr %pointer
  %errors.12 = or i32 %e1, %e2
  %errors.34 = or i32 %e3, %e4
  %errors.67 = or i32 %e6, %e7
  %errors.1234 = or i32 %errors.12, %errors.34
  %errors = or i32 %errors.1234, %errors.67
  %no.error = icmp eq i32 %errors, 0
  %data.bits = ptrtoint ptr %data to i64
  %mask = sext i32 %misaligned to i64
  %crooked.bits = and i64 %data.bits, %mask
  %aligned = icmp eq i64 %crooked.bits, 0
  %sound = and i1 %no.error, %aligned
  br i1 %sound, label %compare, label %wrong

compare:
  %memory = icmp ne ptr %data, null
  %fits = call i1 @fits(i64 %rank, ptr %dims, ptr %values, ptr %shape, ptr %strides, i1 %memory)
  br i1 %fits, label %right, label %wrong

right:
  %pair = insertvalue { ptr, i1 } { ptr null, i1 true }, ptr %data, 0
  ret { ptr, i1 } %pair

wrong:
  ret { ptr, i1 } { ptr null, i1 false }
}

; Whether no two of the tensors that are the call's own lie in the same storage, in programs that
; write to some. The storages of the last call that was found right are remembered: only those that
; are others are compared with all.
define internal i1 @apart(ptr %quick, ptr %registers) {
entry:
  %q = load %Quick, ptr %quick
  %count = extractvalue %Quick %q, 6
  %sources = extractvalue %Quick %q, 7
  %offset = extractvalue %Quick %q, 12
  %own = extractvalue %Quick %q, 14
  %known = extractvalue %Quick %q, 15
  %storage.offset = extractvalue %Quick %q, 16
  %any = icmp ne ptr %own, null
  br i1 %any, label %begin, label %all

begin:
  %now = alloca i64, i64 %count
  br label %find.head

find.head:
  %f = phi i64 [ 0, %begin ], [ %f.next, %found ]
  %f.more = icmp ult i64 %f, %count
  br i1 %f.more, label %find, label %compare.head

find:
  %own.at = getelementptr i64, ptr %own, i64 %f
  %its.own = load i64, ptr %own.at
  %is.own = icmp ne i64 %its.own, 0
  br i1 %is.own, label %find.own, label %found

find.own:
  %source.at = getelementptr i64, ptr %sources, i64 %f
  %source = load i64, ptr %source.at
  %object.at = getelementptr ptr, ptr %registers, i64 %source
  %object = load ptr, ptr %object.at
  %impl.at = getelementptr i8, ptr %object, i64 %offset
  %impl = load ptr, ptr %impl.at
  %storage.at = getelementptr i8, ptr %impl, i64 %storage.offset
  %storage = load i64, ptr %storage.at
  %no.storage = icmp eq i64 %storage, 0
  br i1 %no.storage, label %shared, label %found

found:
  %f.storage = phi i64 [ 0, %find ], [ %storage, %find.own ]
  %f.to = getelementptr i64, ptr %now, i64 %f
  store i64 %f.storage, ptr %f.to
  %f.next = add i64 %f, 1
  br label %find.head

compare.head:
  %c = phi i64 [ 0, %find.head ], [ %c.next, %compare.done ]
  %c.more = icmp ult i64 %c, %count
  br i1 %c.more, label %compare, label %keep.head

compare:
  %c.at = getelementptr i64, ptr %now, i64 %c
  %c.storage = load i64, ptr %c.at
  %known.at = getelementptr i64, ptr %known, i64 %c
  %known.storage = load i64, ptr %known.at
  %as.known = icmp eq i64 %c.storage, %known.storage
  br i1 %as.known, label %compare.done, label %other.head

other.head:
  %o = phi i64 [ 0, %compare ], [ %o.next, %other.done ]
  %o.more = icmp ult i64 %o, %count
  br i1 %o.more, label %other, label %compare.done

other:
  %o.at = getelementptr i64, ptr %now, i64 %o
  %o.storage = load i64, ptr %o.at
  %alike = icmp eq i64 %o.storage, %c.storage
  %another = icmp ne i64 %o, %c
  %is.shared = and i1 %alike, %another
  br i1 %is.shared, label %shared, label %other.done

other.done:
  %o.next = add i64 %o, 1
  br label %other.head

compare.done:
  %c.next = add i64 %c, 1
  br label %compare.head

keep.head:
  %k = phi i64 [ 0, %compare.head ], [ %k.next, %keep ]
  %k.more = icmp ult i64 %k, %count
  br i1 %k.more, label %keep, label %all

keep:
  %k.from = getelementptr i64, ptr %now, i64 %k
  %k.storage = load i64, ptr %k.from
  %k.to = getelementptr i64, ptr %known, i64 %k
  store i64 %k.storage, ptr %k.to
  %k.next = add i64 %k, 1
  br label %keep.head

all:
  ret i1 true

shared:
  ret i1 false
}

; Puts the tensors of a call into a list of as many elements, which keeps them alive.
define internal void @hold(ptr %quick, ptr %registers, ptr %list) {
entry:
  %q = load %Quick, ptr %quick
  %count = extractvalue %Quick %q, 6
  %sources = extractvalue %Quick %q, 7
  %wanted = icmp ne ptr %list, null
  br i1 %wanted, label %head, label %done

head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done

one:
  %source.at = getelementptr i64, ptr %sources, i64 %i
  %source = load i64, ptr %source.at
  %object.at = getelementptr ptr, ptr %registers, i64 %source
  %object = load ptr, ptr %object.at
  call void @Py_IncRef(ptr %object)                         ; the list takes the reference over
  %e = call i32 @PyList_SetItem(ptr %list, i64 %i, ptr %object)
  %i.next = add i64 %i, 1
  br label %head

done:
  ret void
}

; @place for output tensors that are in a list, made for this call by torch.
define internal void @place_listed(ptr %quick, ptr %frame, ptr %list) {
entry:
  %offset.at = getelementptr %Quick, ptr %quick, i32 0, i32 12
  %offset = load i64, ptr %offset.at
  %items.at = getelementptr i8, ptr %list, i64 24
  %items = load ptr, ptr %items.at
  %table = load ptr, ptr %frame
  %addresses = getelementptr %Frame, ptr %frame, i32 0, i32 10
  %count.at = getelementptr %Table, ptr %table, i32 0, i32 2
  %count = load i64, ptr %count.at
  %numbers.at = getelementptr %Table, ptr %table, i32 0, i32 3
  %numbers = load ptr, ptr %numbers.at
  br label %head

head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done

one:
  %object.at = getelementptr ptr, ptr %items, i64 %i
  %object = load ptr, ptr %object.at
  %handle = getelementptr i8, ptr %object, i64 %offset
  %number.at = getelementptr i64, ptr %numbers, i64 %i
  %number = load i64, ptr %number.at
  %slot = getelementptr ptr, ptr %addresses, i64 %number
  %e = call i32 @aoti_torch_get_data_ptr(ptr %handle, ptr %slot)   ; never fails for these
  %i.next = add i64 %i, 1
  br label %head

done:
  ret void
}

; km_settings(): the word of @settings. km_unmoved(quick): 1 or 0.
define i32 @km_settings(ptr %self, ptr %args, i32 %count, ptr %result) {
  %word = call i64 @settings()
  call void @give(ptr %result, i64 %word)
  ret i32 0
}

define i32 @km_unmoved(ptr %self, ptr %args, i32 %count, ptr %result) {
  %quick = call ptr @pointer_argument(ptr %args, i64 0)
  %watched = call i1 @unmoved.all(ptr %quick)
  %unmoved = zext i1 %watched to i64
  call void @give(ptr %result, i64 %unmoved)
  ret i32 0
}

; km_quick(frame, binding, quick, values, outputs, last, held): checks all of a call, then runs
; launches up to number `last`. `outputs` is the list of the output tensors, `held` is 0 or a list
; that gets the tensors of the call. Gives 0 or a status; or what was otherwise, and nothing has been
; written: -1 settings or binding, -2 the watch, -3 the structure of the values, -4 a tensor, a size,
; shared memory or a long-lived argument.
define i32 @km_quick(ptr %self, ptr %args, i32 %count, ptr %result) {
entry:
  %frame = call ptr @pointer_argument(ptr %args, i64 0)
  %binding = call ptr @pointer_argument(ptr %args, i64 1)
  %quick = call ptr @pointer_argument(ptr %args, i64 2)
  %given = call ptr @pointer_argument(ptr %args, i64 3)
  %outputs = call ptr @pointer_argument(ptr %args, i64 4)
  %last.at = getelementptr %Any, ptr %args, i64 5, i32 2
  %last = load i64, ptr %last.at
  %held = call ptr @pointer_argument(ptr %args, i64 6)
  %q = load %Quick, ptr %quick
  %settings.expected = extractvalue %Quick %q, 0
  %register.count = extractvalue %Quick %q, 5
  %tensor.count = extractvalue %Quick %q, 6
  %sources = extractvalue %Quick %q, 7
  %scalars = extractvalue %Quick %q, 8
  %arguments = extractvalue %Quick %q, 9
  %registers = alloca ptr, i64 %register.count
  %settings.now = call i64 @settings()
  %same.settings = icmp eq i64 %settings.now, %settings.expected
  %binding.expected = extractvalue %Quick %q, 13
  %same.binding = icmp eq ptr %binding, %binding.expected
  %current = and i1 %same.settings, %same.binding
  br i1 %current, label %watch, label %refused

watch:
  %unmoved = call i1 @unmoved.all(ptr %quick)
  br i1 %unmoved, label %structure, label %refused

structure:
  store ptr %given, ptr %registers
  %registers.1 = getelementptr ptr, ptr %registers, i64 1
  store ptr %arguments, ptr %registers.1
  %table = load ptr, ptr %frame
  %values.at = getelementptr %Frame, ptr %frame, i32 0, i32 1
  %values = load ptr, ptr %values.at
  %addresses = getelementptr %Frame, ptr %frame, i32 0, i32 10
  %inputs.at = getelementptr %Table, ptr %table, i32 0, i32 1
  %inputs = load ptr, ptr %inputs.at
  %unpacked = call i64 @unpack(ptr %quick, ptr %registers, ptr %values)
  %as.expected = icmp eq i64 %unpacked, 0
  br i1 %as.expected, label %head, label %refused

head:
  %i = phi i64 [ 0, %structure ], [ %i.next, %good ]
  %more = icmp ult i64 %i, %tensor.count
  br i1 %more, label %tensor, label %together

tensor:
  %source.at = getelementptr i64, ptr %sources, i64 %i
  %source = load i64, ptr %source.at
  %object.at = getelementptr ptr, ptr %registers, i64 %source
  %object = load ptr, ptr %object.at
  %scalar.at = getelementptr i64, ptr %scalars, i64 %i
  %scalar = load i64, ptr %scalar.at
  %input.at = getelementptr %Input, ptr %inputs, i64 %i
  %checked = call { ptr, i1 } @check_object(ptr %quick, ptr %input.at, ptr %values, ptr %object,
                                            i64 %scalar)
  %data = extractvalue { ptr, i1 } %checked, 0
  %fits = extractvalue { ptr, i1 } %checked, 1
  br i1 %fits, label %good, label %refused

good:
  %buffer = load i64, ptr %input.at
  %slot = getelementptr ptr, ptr %addresses, i64 %buffer
  store ptr %data, ptr %slot
  %i.next = add i64 %i, 1
  br label %head

together:
  %apart = call i1 @apart(ptr %quick, ptr %registers)
  br i1 %apart, label %bound, label %refused

bound:
  %code = call i64 @admit_bound(ptr %frame, ptr %binding, ptr %arguments)
  %admitted = icmp eq i64 %code, 0
  br i1 %admitted, label %ready, label %refused

ready:
  call void @hold(ptr %quick, ptr %registers, ptr %held)
  call void @place_listed(ptr %quick, ptr %frame, ptr %outputs)
  call void @run(ptr %frame, i64 0, i64 %last)
  %status.at = getelementptr %Frame, ptr %frame, i32 0, i32 7
  %status = load i64, ptr %status.at
  call void @give(ptr %result, i64 %status)
  ret i32 0

refused:
  %why = phi i64 [ -1, %entry ], [ -2, %watch ], [ %unpacked, %structure ], [ -4, %tensor ],
                 [ -4, %together ], [ -4, %bound ]
  call void @give(ptr %result, i64 %why)
  ret i32 0
}

; km_digest(address, bytes): a number for the contents.
define i32 @km_digest(ptr %self, ptr %args, i32 %count, ptr %result) {
  %data = call ptr @pointer_argument(ptr %args, i64 0)
  %bytes.at = getelementptr %Any, ptr %args, i64 1, i32 2
  %bytes = load i64, ptr %bytes.at
  %digest = call i64 @digest(ptr %data, i64 %bytes)
  call void @give(ptr %result, i64 %digest)
  ret i32 0
}

; km_repeat(frame, times): all launches again and again, after a call that filled in the addresses.
define i32 @km_repeat(ptr %self, ptr %args, i32 %count, ptr %result) {
entry:
  %frame = call ptr @pointer_argument(ptr %args, i64 0)
  %times.at = getelementptr %Any, ptr %args, i64 1, i32 2
  %times = load i64, ptr %times.at
  %table = load ptr, ptr %frame
  %launch.count.at = getelementptr %Table, ptr %table, i32 0, i32 6
  %launch.count = load i64, ptr %launch.count.at
  br label %head

head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %again ]
  %more = icmp ult i64 %i, %times
  br i1 %more, label %again, label %done

again:
  call void @run(ptr %frame, i64 0, i64 %launch.count)
  %i.next = add i64 %i, 1
  br label %head

done:
  %status.at = getelementptr %Frame, ptr %frame, i32 0, i32 7
  %status = load i64, ptr %status.at
  call void @give(ptr %result, i64 %status)
  ret i32 0
}
