; Made by `python -m tools.native_entry` from native/executor.c: edit that.

%struct.Changes = type { i64, i64, i64, i64, ptr }
%struct.Flags = type { i64, ptr }
%struct.InputRecord = type { i64, i64, i32, i32, ptr }
%struct.TVMFFIAny = type { i32, %union.anon, %union.anon.0 }
%union.anon = type { i32 }
%union.anon.0 = type { i64 }
%struct.Time = type { i64, i64 }
%struct.Run = type { ptr, ptr, ptr, i64, i64, %struct.Region, i64, i64, i64, i8, i64, i64, i64, i64, [40 x i8], i64, [56 x i8] }
%struct.Region = type { [8 x %struct.Prepared], i64, i64, ptr, i64, i64, i64 }
%struct.Prepared = type { ptr, ptr, ptr, i64, i64 }
%struct.LaunchRecord = type { ptr, i64, ptr, i64, ptr, i64, i64, i64, i64, i64 }
%struct.StepRecord = type { i64, i64, ptr, i64, i64 }
%struct.SymbolRecord = type { i64, i64, i64, i64, i64 }
%struct.WatchRecord = type { i64, ptr, ptr, i64, i64 }
%struct.rusage = type { %struct.timeval, %struct.timeval, %union.anon.2, %union.anon.3, %union.anon.4, %union.anon.5, %union.anon.6, %union.anon.7, %union.anon.8, %union.anon.9, %union.anon.10, %union.anon.11, %union.anon.12, %union.anon.13, %union.anon.14, %union.anon.15 }
%struct.timeval = type { i64, i64 }
%union.anon.2 = type { i64 }
%union.anon.3 = type { i64 }
%union.anon.4 = type { i64 }
%union.anon.5 = type { i64 }
%union.anon.6 = type { i64 }
%union.anon.7 = type { i64 }
%union.anon.8 = type { i64 }
%union.anon.9 = type { i64 }
%union.anon.10 = type { i64 }
%union.anon.11 = type { i64 }
%union.anon.12 = type { i64 }
%union.anon.13 = type { i64 }
%union.anon.14 = type { i64 }
%union.anon.15 = type { i64 }
%struct.Check = type { ptr, ptr, ptr, ptr, i64, i64, i64, i64, i64, i64, i64, i64, [32 x i8], i64, [56 x i8] }
%struct.PackedRecord = type { i64, ptr }
%struct.ArenaRecord = type { i64, i64 }
%struct.page_region = type { i64, i64, i64 }
%struct.pm_scan_arg = type { i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64 }
%struct.PagesRecord = type { i64, i64 }
%struct.ParameterRecord = type { ptr, ptr, i64, ptr, ptr, i64, i64, i64, i64, i64, i64, ptr, i64, ptr, i64, i64, i64, ptr, i64, ptr, ptr, i64, i64, i64 }
%struct.EdgeRecord = type { ptr, i64, ptr }
%struct.PlaceRecord = type { i64, i64, i64 }

@km_changes = external local_unnamed_addr global %struct.Changes, align 8
@.str = private unnamed_addr constant [11 x i8] c"/proc/stat\00", align 1
@km_flags = external local_unnamed_addr constant %struct.Flags, align 8

; Function Attrs: nounwind uwtable(sync)
define noundef i32 @km_dict_changed(i32 noundef %0, ptr noundef %1, ptr nocapture noundef readnone %2, ptr nocapture noundef readnone %3) local_unnamed_addr #0 {
  %5 = icmp eq i32 %0, 5
  br i1 %5, label %16, label %6

6:
  %7 = load ptr, ptr getelementptr inbounds (i8, ptr @km_changes, i64 32), align 8
  %8 = load i64, ptr @km_changes, align 8
  %9 = add i64 %8, 1
  store i64 %9, ptr @km_changes, align 8
  %10 = load i64, ptr getelementptr inbounds (i8, ptr @km_changes, i64 24), align 8
  %11 = srem i64 %8, %10
  %12 = getelementptr ptr, ptr %7, i64 %11
  store ptr %1, ptr %12, align 8
  %13 = load i64, ptr getelementptr inbounds (i8, ptr @km_changes, i64 8), align 8
  %14 = trunc i64 %13 to i32
  %15 = tail call i32 @PyDict_Unwatch(i32 noundef %14, ptr noundef %1) #12
  br label %16

16:
  ret i32 0
}

declare i32 @PyDict_Unwatch(i32 noundef, ptr noundef) local_unnamed_addr #1

; Function Attrs: nounwind uwtable(sync)
define noundef i32 @km_type_changed(ptr noundef %0) local_unnamed_addr #0 {
  %2 = load ptr, ptr getelementptr inbounds (i8, ptr @km_changes, i64 32), align 8
  %3 = load i64, ptr @km_changes, align 8
  %4 = add i64 %3, 1
  store i64 %4, ptr @km_changes, align 8
  %5 = load i64, ptr getelementptr inbounds (i8, ptr @km_changes, i64 24), align 8
  %6 = srem i64 %3, %5
  %7 = getelementptr ptr, ptr %2, i64 %6
  store ptr %0, ptr %7, align 8
  %8 = load i64, ptr getelementptr inbounds (i8, ptr @km_changes, i64 16), align 8
  %9 = trunc i64 %8 to i32
  %10 = tail call i32 @PyType_Unwatch(i32 noundef %9, ptr noundef %0) #12
  ret i32 0
}

declare i32 @PyType_Unwatch(i32 noundef, ptr noundef) local_unnamed_addr #1

; Function Attrs: nounwind uwtable(sync)
define noundef i32 @km_validate(ptr nocapture noundef readnone %0, ptr nocapture noundef readonly %1, i32 noundef %2, ptr nocapture noundef writeonly %3) local_unnamed_addr #0 {
  %5 = getelementptr inbounds i8, ptr %1, i64 8
  %6 = load ptr, ptr %5, align 8
  %7 = getelementptr i8, ptr %1, i64 24
  %8 = load ptr, ptr %7, align 8
  %9 = getelementptr i8, ptr %1, i64 40
  %10 = load ptr, ptr %9, align 8
  %11 = getelementptr i8, ptr %1, i64 48
  %12 = load ptr, ptr %6, align 8
  %13 = getelementptr inbounds i8, ptr %12, i64 8
  %14 = load ptr, ptr %13, align 8
  %15 = load i64, ptr %12, align 8
  %16 = icmp sgt i64 %15, 0
  br i1 %16, label %17, label %114

17:
  %18 = getelementptr i8, ptr %6, i64 160
  %19 = getelementptr inbounds i8, ptr %6, i64 8
  br label %20

20:
  %21 = phi i64 [ 0, %17 ], [ %109, %108 ]
  %22 = getelementptr %struct.InputRecord, ptr %14, i64 %21
  %23 = load i64, ptr %22, align 8
  %24 = getelementptr ptr, ptr %18, i64 %23
  %25 = load ptr, ptr %19, align 8
  %26 = getelementptr %struct.TVMFFIAny, ptr %11, i64 %21
  %27 = load i32, ptr %26, align 8
  %28 = icmp eq i32 %27, 70
  br i1 %28, label %29, label %112

29:
  %30 = getelementptr inbounds i8, ptr %26, i64 8
  %31 = load ptr, ptr %30, align 8
  %32 = getelementptr i8, ptr %31, i64 24
  %33 = getelementptr i8, ptr %31, i64 44
  %34 = load i32, ptr %33, align 4
  %35 = getelementptr i8, ptr %31, i64 32
  %36 = load i32, ptr %35, align 8
  %37 = icmp eq i32 %36, 1
  br i1 %37, label %38, label %112

38:
  %39 = getelementptr i8, ptr %31, i64 40
  %40 = load i32, ptr %39, align 8
  %41 = sext i32 %40 to i64
  %42 = getelementptr inbounds i8, ptr %22, i64 8
  %43 = load i64, ptr %42, align 8
  %44 = icmp eq i64 %43, %41
  br i1 %44, label %45, label %112

45:
  %46 = getelementptr inbounds i8, ptr %22, i64 16
  %47 = load i32, ptr %46, align 8
  %48 = icmp eq i32 %34, %47
  br i1 %48, label %49, label %112

49:
  %50 = load ptr, ptr %32, align 8
  %51 = getelementptr i8, ptr %31, i64 64
  %52 = load i64, ptr %51, align 8
  %53 = getelementptr i8, ptr %50, i64 %52
  %54 = ptrtoint ptr %53 to i64
  %55 = getelementptr inbounds i8, ptr %22, i64 20
  %56 = load i32, ptr %55, align 4
  %57 = sext i32 %56 to i64
  %58 = and i64 %57, %54
  %59 = icmp eq i64 %58, 0
  br i1 %59, label %60, label %112

60:
  %61 = getelementptr i8, ptr %31, i64 56
  %62 = load ptr, ptr %61, align 8
  %63 = icmp ne ptr %62, null
  %64 = icmp eq i32 %40, 0
  %65 = or i1 %64, %63
  br i1 %65, label %66, label %112

66:
  store ptr %53, ptr %24, align 8
  %67 = load ptr, ptr %32, align 8
  %68 = icmp ne ptr %67, null
  %69 = getelementptr i8, ptr %31, i64 48
  %70 = load ptr, ptr %69, align 8
  %71 = load ptr, ptr %61, align 8
  %72 = getelementptr inbounds i8, ptr %22, i64 24
  %73 = load ptr, ptr %72, align 8
  %74 = load i64, ptr %42, align 8
  %75 = getelementptr i64, ptr %73, i64 %74
  %76 = icmp sgt i64 %74, 0
  br i1 %76, label %77, label %103

77:
  %78 = phi i64 [ %101, %88 ], [ 0, %66 ]
  %79 = phi i1 [ %100, %88 ], [ false, %66 ]
  %80 = phi i1 [ %98, %88 ], [ true, %66 ]
  %81 = getelementptr i64, ptr %70, i64 %78
  %82 = load i64, ptr %81, align 8
  %83 = getelementptr i64, ptr %73, i64 %78
  %84 = load i64, ptr %83, align 8
  %85 = getelementptr i64, ptr %25, i64 %84
  %86 = load i64, ptr %85, align 8
  %87 = icmp eq i64 %82, %86
  br i1 %87, label %88, label %112

88:
  %89 = getelementptr i64, ptr %71, i64 %78
  %90 = load i64, ptr %89, align 8
  %91 = getelementptr i64, ptr %75, i64 %78
  %92 = load i64, ptr %91, align 8
  %93 = getelementptr i64, ptr %25, i64 %92
  %94 = load i64, ptr %93, align 8
  %95 = icmp eq i64 %90, %94
  %96 = icmp eq i64 %82, 1
  %97 = or i1 %96, %95
  %98 = and i1 %80, %97
  %99 = icmp eq i64 %82, 0
  %100 = or i1 %79, %99
  %101 = add nuw nsw i64 %78, 1
  %102 = icmp eq i64 %101, %74
  br i1 %102, label %103, label %77

103:
  %104 = phi i1 [ true, %66 ], [ %98, %88 ]
  %105 = phi i1 [ false, %66 ], [ %100, %88 ]
  %106 = and i1 %68, %104
  %107 = select i1 %106, i1 true, i1 %105
  br i1 %107, label %108, label %112

108:
  %109 = add nuw nsw i64 %21, 1
  %110 = load i64, ptr %12, align 8
  %111 = icmp slt i64 %109, %110
  br i1 %111, label %20, label %114

112:
  %113 = xor i64 %21, -1
  br label %116

114:
  %115 = tail call fastcc i64 @validate_bound(ptr noundef nonnull %6, ptr noundef %8, ptr noundef %10, ptr noundef null, i64 noundef 0)
  br label %116

116:
  %117 = phi i64 [ %115, %114 ], [ %113, %112 ]
  store i32 1, ptr %3, align 8
  %118 = getelementptr inbounds i8, ptr %3, i64 4
  store i32 0, ptr %118, align 4
  %119 = getelementptr inbounds i8, ptr %3, i64 8
  store i64 %117, ptr %119, align 8
  ret i32 0
}

; Function Attrs: nounwind uwtable(sync)
define noundef i32 @km_launch(ptr nocapture noundef readnone %0, ptr nocapture noundef readonly %1, i32 noundef %2, ptr nocapture noundef writeonly %3) local_unnamed_addr #0 {
  %5 = getelementptr inbounds i8, ptr %1, i64 8
  %6 = load ptr, ptr %5, align 8
  %7 = getelementptr i8, ptr %1, i64 24
  %8 = load i64, ptr %7, align 8
  %9 = getelementptr i8, ptr %1, i64 40
  %10 = load i64, ptr %9, align 8
  %11 = tail call fastcc i64 @run(ptr noundef %6, i64 noundef %8, i64 noundef %10)
  store i32 1, ptr %3, align 8
  %12 = getelementptr inbounds i8, ptr %3, i64 4
  store i32 0, ptr %12, align 4
  %13 = getelementptr inbounds i8, ptr %3, i64 8
  store i64 %11, ptr %13, align 8
  ret i32 0
}

; Function Attrs: nounwind uwtable(sync)
define internal fastcc i64 @run(ptr noundef %0, i64 noundef %1, i64 noundef %2) unnamed_addr #0 {
  %4 = alloca %struct.Time, align 8
  %5 = alloca %struct.Time, align 8
  %6 = alloca %struct.Time, align 8
  %7 = alloca %struct.Time, align 8
  %8 = alloca %struct.Time, align 8
  %9 = alloca %struct.Run, align 64
  %10 = load ptr, ptr %0, align 8
  call void @llvm.lifetime.start.p0(i64 576, ptr nonnull %9) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 64 dereferenceable(576) %9, i8 0, i64 576, i1 false)
  store ptr %0, ptr %9, align 64
  %11 = getelementptr inbounds i8, ptr %9, i64 8
  %12 = getelementptr inbounds i8, ptr %10, i64 56
  %13 = load ptr, ptr %12, align 8
  store ptr %13, ptr %11, align 8
  %14 = getelementptr inbounds i8, ptr %9, i64 16
  %15 = getelementptr inbounds i8, ptr %0, i64 8
  %16 = load ptr, ptr %15, align 8
  store ptr %16, ptr %14, align 16
  %17 = getelementptr inbounds i8, ptr %10, i64 80
  %18 = load i64, ptr %17, align 8
  %19 = getelementptr inbounds i8, ptr %9, i64 424
  store i64 %18, ptr %19, align 8
  %20 = tail call i32 @_ZN2at15get_num_threadsEv() #12
  %21 = sext i32 %20 to i64
  %22 = getelementptr inbounds i8, ptr %0, i64 40
  %23 = load i64, ptr %22, align 8
  %24 = tail call noundef i64 @llvm.smin.i64(i64 %21, i64 %23)
  %25 = getelementptr inbounds i8, ptr %0, i64 64
  %26 = load i64, ptr %25, align 8
  %27 = icmp ne i64 %26, 0
  %28 = icmp slt i64 %26, %24
  %29 = and i1 %27, %28
  br i1 %29, label %30, label %59

30:
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %8) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %8, i8 0, i64 16, i1 false)
  %31 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %8) #12
  %32 = load i64, ptr %8, align 8
  %33 = mul i64 %32, 1000000000
  %34 = getelementptr inbounds i8, ptr %8, i64 8
  %35 = load i64, ptr %34, align 8
  %36 = add i64 %33, %35
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %8) #12
  %37 = getelementptr inbounds i8, ptr %0, i64 72
  %38 = load i64, ptr %37, align 8
  %39 = icmp slt i64 %36, %38
  br i1 %39, label %40, label %42

40:
  %41 = load i64, ptr %25, align 8
  br label %59

42:
  %43 = call fastcc zeroext i1 @is_room(ptr noundef nonnull %0, i64 noundef %36)
  br i1 %43, label %51, label %44

44:
  %45 = getelementptr inbounds i8, ptr %0, i64 80
  %46 = load i64, ptr %45, align 8
  %47 = icmp slt i64 %36, %46
  br i1 %47, label %48, label %51

48:
  %49 = add i64 %36, 250000000
  store i64 %49, ptr %37, align 8
  %50 = load i64, ptr %25, align 8
  br label %59

51:
  %52 = load i64, ptr %25, align 8
  %53 = shl i64 %52, 1
  store i64 %53, ptr %25, align 8
  %54 = getelementptr inbounds i8, ptr %0, i64 88
  %55 = load i64, ptr %54, align 8
  %56 = add i64 %55, %36
  store i64 %56, ptr %37, align 8
  %57 = getelementptr inbounds i8, ptr %0, i64 120
  store i64 6000000, ptr %57, align 8
  %58 = call noundef i64 @llvm.smin.i64(i64 %24, i64 %53)
  br label %59

59:
  %60 = phi i64 [ %24, %3 ], [ %41, %40 ], [ %58, %51 ], [ %50, %48 ]
  %61 = getelementptr inbounds i8, ptr %9, i64 416
  store i64 %60, ptr %61, align 32
  %62 = getelementptr inbounds i8, ptr %10, i64 64
  %63 = load i64, ptr %62, align 8
  %64 = shl i64 %63, 6
  %65 = alloca i8, i64 %64, align 16
  %66 = getelementptr inbounds i8, ptr %10, i64 72
  %67 = load i64, ptr %66, align 8
  %68 = shl i64 %67, 6
  %69 = alloca i8, i64 %68, align 16
  %70 = getelementptr inbounds i8, ptr %9, i64 40
  br label %98

71:
  %72 = getelementptr inbounds i8, ptr %0, i64 24
  %73 = load ptr, ptr %72, align 8
  %74 = getelementptr inbounds i8, ptr %9, i64 376
  store ptr %73, ptr %74, align 8
  %75 = getelementptr inbounds i8, ptr %0, i64 32
  %76 = load i64, ptr %75, align 8
  %77 = getelementptr inbounds i8, ptr %9, i64 384
  store i64 %76, ptr %77, align 64
  %78 = getelementptr inbounds i8, ptr %0, i64 136
  %79 = load ptr, ptr %78, align 8
  %80 = icmp slt i64 %1, %2
  br i1 %80, label %81, label %458

81:
  %82 = getelementptr inbounds i8, ptr %9, i64 48
  %83 = getelementptr inbounds i8, ptr %5, i64 8
  %84 = getelementptr inbounds i8, ptr %9, i64 392
  %85 = getelementptr inbounds i8, ptr %9, i64 400
  %86 = getelementptr inbounds i8, ptr %4, i64 8
  %87 = getelementptr inbounds i8, ptr %9, i64 32
  %88 = getelementptr inbounds i8, ptr %9, i64 24
  %89 = getelementptr inbounds i8, ptr %9, i64 464
  %90 = getelementptr inbounds i8, ptr %9, i64 448
  %91 = getelementptr inbounds i8, ptr %9, i64 432
  %92 = getelementptr inbounds i8, ptr %7, i64 8
  %93 = getelementptr inbounds i8, ptr %9, i64 440
  %94 = getelementptr inbounds i8, ptr %6, i64 8
  %95 = getelementptr inbounds i8, ptr %9, i64 456
  %96 = getelementptr inbounds i8, ptr %9, i64 368
  %97 = getelementptr inbounds i8, ptr %9, i64 360
  br label %111

98:
  %99 = phi i64 [ 0, %59 ], [ %107, %98 ]
  %100 = mul i64 %63, %99
  %101 = getelementptr ptr, ptr %65, i64 %100
  %102 = getelementptr [8 x %struct.Prepared], ptr %70, i64 0, i64 %99
  %103 = getelementptr inbounds i8, ptr %102, i64 8
  store ptr %101, ptr %103, align 8
  %104 = mul i64 %67, %99
  %105 = getelementptr i64, ptr %69, i64 %104
  %106 = getelementptr inbounds i8, ptr %102, i64 16
  store ptr %105, ptr %106, align 8
  %107 = add nuw nsw i64 %99, 1
  %108 = icmp eq i64 %107, 8
  br i1 %108, label %71, label %98

109:
  %110 = trunc nuw i8 %453 to i1
  br i1 %110, label %456, label %458

111:
  %112 = phi i8 [ 0, %81 ], [ %453, %452 ]
  %113 = phi i64 [ %1, %81 ], [ %454, %452 ]
  %114 = load ptr, ptr %11, align 8
  %115 = getelementptr %struct.LaunchRecord, ptr %114, i64 %113
  %116 = getelementptr inbounds i8, ptr %115, i64 56
  %117 = load i64, ptr %116, align 8
  %118 = add i64 %117, %113
  %119 = getelementptr inbounds i8, ptr %115, i64 64
  %120 = load i64, ptr %119, align 8
  %121 = icmp eq i64 %120, 0
  %122 = icmp slt i64 %118, %2
  %123 = select i1 %121, i1 %122, i1 false
  br i1 %123, label %124, label %140

124:
  %125 = phi i64 [ %138, %137 ], [ %118, %111 ]
  %126 = getelementptr %struct.LaunchRecord, ptr %114, i64 %125
  %127 = getelementptr inbounds i8, ptr %126, i64 72
  %128 = load i64, ptr %127, align 8
  %129 = icmp eq i64 %128, 0
  br i1 %129, label %140, label %130

130:
  %131 = getelementptr inbounds i8, ptr %126, i64 64
  %132 = load i64, ptr %131, align 8
  %133 = icmp eq i64 %132, 0
  %134 = sub i64 %125, %113
  %135 = icmp slt i64 %134, 8
  %136 = and i1 %135, %133
  br i1 %136, label %137, label %140

137:
  %138 = add nsw i64 %125, 1
  %139 = icmp slt i64 %138, %2
  br i1 %139, label %124, label %140

140:
  %141 = phi i64 [ %118, %111 ], [ %2, %137 ], [ %125, %124 ], [ %125, %130 ]
  %142 = icmp sge i64 %113, %141
  br i1 %142, label %143, label %145

143:
  %144 = trunc nuw i8 %112 to i1
  br i1 %144, label %182, label %201

145:
  %146 = load ptr, ptr %14, align 16
  br label %147

147:
  %148 = phi i64 [ 0, %145 ], [ %166, %164 ]
  %149 = phi i64 [ 0, %145 ], [ %165, %164 ]
  %150 = phi i64 [ %113, %145 ], [ %169, %164 ]
  %151 = getelementptr %struct.LaunchRecord, ptr %114, i64 %150
  %152 = getelementptr inbounds i8, ptr %151, i64 40
  %153 = load i64, ptr %152, align 8
  %154 = getelementptr i64, ptr %146, i64 %153
  %155 = load i64, ptr %154, align 8
  %156 = icmp slt i64 %155, 1
  br i1 %156, label %164, label %157

157:
  %158 = add i64 %155, %148
  %159 = getelementptr inbounds i8, ptr %151, i64 48
  %160 = load i64, ptr %159, align 8
  %161 = getelementptr i64, ptr %146, i64 %160
  %162 = load i64, ptr %161, align 8
  %163 = add i64 %162, %149
  br label %164

164:
  %165 = phi i64 [ %163, %157 ], [ %149, %147 ]
  %166 = phi i64 [ %158, %157 ], [ %148, %147 ]
  %167 = getelementptr %struct.LaunchRecord, ptr %114, i64 %150, i32 7
  %168 = load i64, ptr %167, align 8
  %169 = add i64 %168, %150
  %170 = icmp slt i64 %169, %141
  br i1 %170, label %147, label %171

171:
  %172 = trunc nuw i8 %112 to i1
  %173 = xor i1 %172, true
  %174 = icmp sgt i64 %166, 1
  %175 = select i1 %173, i1 %174, i1 false
  %176 = load i64, ptr %19, align 8
  %177 = icmp sle i64 %176, %165
  %178 = select i1 %175, i1 %177, i1 false
  br i1 %178, label %179, label %181

179:
  %180 = atomicrmw add ptr %79, i64 1 monotonic, align 8
  br label %182

181:
  br i1 %172, label %182, label %193

182:
  %183 = phi i8 [ 1, %179 ], [ %112, %181 ], [ %112, %143 ]
  %184 = phi i64 [ %165, %179 ], [ %165, %181 ], [ 0, %143 ]
  %185 = phi i64 [ %166, %179 ], [ %166, %181 ], [ 0, %143 ]
  %186 = load atomic i64, ptr %79 monotonic, align 8
  %187 = icmp sgt i64 %186, 1
  br i1 %187, label %188, label %191

188:
  %189 = sdiv i64 %60, %186
  %190 = call noundef i64 @llvm.smax.i64(i64 %189, i64 1)
  br label %191

191:
  %192 = phi i64 [ %190, %188 ], [ %60, %182 ]
  store i64 %192, ptr %61, align 32
  br label %193

193:
  %194 = phi i8 [ %183, %191 ], [ %112, %181 ]
  %195 = phi i64 [ %184, %191 ], [ %165, %181 ]
  %196 = phi i64 [ %185, %191 ], [ %166, %181 ]
  %197 = icmp sgt i64 %196, 1
  br i1 %197, label %198, label %201

198:
  %199 = load i64, ptr %19, align 8
  %200 = icmp sgt i64 %199, %195
  br i1 %200, label %201, label %206

201:
  %202 = phi i64 [ %196, %193 ], [ %196, %198 ], [ 0, %143 ]
  %203 = phi i8 [ %194, %193 ], [ %194, %198 ], [ %112, %143 ]
  %204 = icmp sgt i64 %202, 0
  %205 = zext i1 %204 to i64
  br label %403

206:
  %207 = lshr i64 %199, 1
  %208 = udiv i64 %195, %207
  %209 = load i64, ptr %61, align 32
  %210 = call noundef i64 @llvm.smin.i64(i64 %196, i64 %208)
  %211 = call noundef i64 @llvm.smin.i64(i64 %209, i64 %210)
  %212 = icmp ugt i64 %211, 16
  br i1 %212, label %213, label %222

213:
  %214 = shl i64 %208, 4
  br label %215

215:
  %216 = phi i64 [ %211, %213 ], [ %220, %219 ]
  %217 = mul i64 %216, %216
  %218 = icmp ugt i64 %217, %214
  br i1 %218, label %219, label %222

219:
  %220 = add i64 %216, -1
  %221 = icmp ugt i64 %220, 16
  br i1 %221, label %215, label %225

222:
  %223 = phi i64 [ %211, %206 ], [ %216, %215 ]
  %224 = icmp sgt i64 %223, 1
  br i1 %224, label %225, label %403

225:
  %226 = phi i64 [ %223, %222 ], [ 16, %219 ]
  %227 = load ptr, ptr %11, align 8
  %228 = getelementptr %struct.LaunchRecord, ptr %227, i64 %113, i32 8
  %229 = load i64, ptr %228, align 8
  %230 = icmp eq i64 %229, 0
  br i1 %230, label %231, label %382

231:
  store i64 %113, ptr %87, align 32
  store i64 %113, ptr %88, align 8
  %232 = load ptr, ptr %14, align 16
  br label %233

233:
  %234 = phi i64 [ %113, %231 ], [ %310, %373 ]
  %235 = phi i64 [ 1, %231 ], [ %376, %373 ]
  %236 = phi i64 [ 0, %231 ], [ %377, %373 ]
  %237 = getelementptr %struct.LaunchRecord, ptr %227, i64 %234, i32 8
  %238 = load i64, ptr %237, align 8
  %239 = icmp eq i64 %238, 0
  br i1 %239, label %288, label %240

240:
  %241 = phi i64 [ %236, %233 ], [ %377, %373 ]
  %242 = phi i64 [ %235, %233 ], [ %376, %373 ]
  %243 = icmp sgt i64 %241, 999999
  %244 = zext i1 %243 to i8
  %245 = load ptr, ptr %9, align 64
  %246 = getelementptr inbounds i8, ptr %245, i64 144
  %247 = load ptr, ptr %246, align 8
  %248 = shl i64 %242, 6
  call void @llvm.memset.p0.i64(ptr align 1 %247, i8 0, i64 %248, i1 false)
  store i64 0, ptr %89, align 16
  store i64 0, ptr %90, align 64
  store i8 %244, ptr %91, align 16
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %7) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %7, i8 0, i64 16, i1 false)
  %249 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %7) #12
  %250 = load i64, ptr %7, align 8
  %251 = mul i64 %250, 1000000000
  %252 = load i64, ptr %92, align 8
  %253 = add i64 %251, %252
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %7) #12
  store i64 %253, ptr %93, align 8
  %254 = trunc i64 %242 to i32
  call void @GOMP_parallel(ptr noundef nonnull @run_region, ptr noundef nonnull %9, i32 noundef %254, i32 noundef 0) #12
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %6) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %6, i8 0, i64 16, i1 false)
  %255 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %6) #12
  %256 = load i64, ptr %6, align 8
  %257 = mul i64 %256, 1000000000
  %258 = load i64, ptr %94, align 8
  %259 = add i64 %257, %258
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %6) #12
  store i64 %199, ptr %19, align 8
  %260 = load ptr, ptr %9, align 64
  %261 = load i64, ptr %61, align 32
  %262 = load i64, ptr %93, align 8
  %263 = load i64, ptr %95, align 8
  %264 = sub i64 %259, %263
  %265 = mul i64 %264, %242
  %266 = add nsw i64 %242, -1
  %267 = load i64, ptr %90, align 64
  %268 = mul i64 %267, %266
  %269 = add i64 %265, %268
  %270 = load i8, ptr %91, align 16
  %271 = trunc nuw i8 %270 to i1
  br i1 %271, label %272, label %276

272:
  %273 = getelementptr inbounds i8, ptr %260, i64 144
  %274 = load ptr, ptr %273, align 8
  %275 = getelementptr i8, ptr %274, i64 32
  br label %278

276:
  %277 = add i64 %269, %267
  br label %379

278:
  %279 = phi i64 [ 0, %272 ], [ %286, %278 ]
  %280 = phi i64 [ %269, %272 ], [ %285, %278 ]
  %281 = shl i64 %279, 6
  %282 = getelementptr i8, ptr %275, i64 %281
  %283 = load i64, ptr %282, align 8
  %284 = call noundef i64 @llvm.smax.i64(i64 %283, i64 0)
  %285 = add i64 %284, %280
  %286 = add nuw nsw i64 %279, 1
  %287 = icmp eq i64 %286, %242
  br i1 %287, label %379, label %278

288:
  %289 = getelementptr %struct.LaunchRecord, ptr %227, i64 %234, i32 7
  %290 = load i64, ptr %289, align 8
  %291 = add i64 %290, %234
  %292 = icmp slt i64 %291, %2
  br i1 %292, label %293, label %309

293:
  %294 = phi i64 [ %307, %306 ], [ %291, %288 ]
  %295 = getelementptr %struct.LaunchRecord, ptr %227, i64 %294
  %296 = getelementptr inbounds i8, ptr %295, i64 72
  %297 = load i64, ptr %296, align 8
  %298 = icmp eq i64 %297, 0
  br i1 %298, label %309, label %299

299:
  %300 = getelementptr inbounds i8, ptr %295, i64 64
  %301 = load i64, ptr %300, align 8
  %302 = icmp eq i64 %301, 0
  %303 = sub i64 %294, %234
  %304 = icmp slt i64 %303, 8
  %305 = and i1 %304, %302
  br i1 %305, label %306, label %309

306:
  %307 = add nsw i64 %294, 1
  %308 = icmp slt i64 %307, %2
  br i1 %308, label %293, label %309

309:
  %310 = phi i64 [ %291, %288 ], [ %294, %299 ], [ %294, %293 ], [ %2, %306 ]
  %311 = icmp slt i64 %234, %310
  br i1 %311, label %312, label %358

312:
  %313 = phi i64 [ %331, %329 ], [ 0, %309 ]
  %314 = phi i64 [ %330, %329 ], [ 0, %309 ]
  %315 = phi i64 [ %334, %329 ], [ %234, %309 ]
  %316 = getelementptr %struct.LaunchRecord, ptr %227, i64 %315
  %317 = getelementptr inbounds i8, ptr %316, i64 40
  %318 = load i64, ptr %317, align 8
  %319 = getelementptr i64, ptr %232, i64 %318
  %320 = load i64, ptr %319, align 8
  %321 = icmp slt i64 %320, 1
  br i1 %321, label %329, label %322

322:
  %323 = add i64 %320, %313
  %324 = getelementptr inbounds i8, ptr %316, i64 48
  %325 = load i64, ptr %324, align 8
  %326 = getelementptr i64, ptr %232, i64 %325
  %327 = load i64, ptr %326, align 8
  %328 = add i64 %327, %314
  br label %329

329:
  %330 = phi i64 [ %328, %322 ], [ %314, %312 ]
  %331 = phi i64 [ %323, %322 ], [ %313, %312 ]
  %332 = getelementptr %struct.LaunchRecord, ptr %227, i64 %315, i32 7
  %333 = load i64, ptr %332, align 8
  %334 = add i64 %333, %315
  %335 = icmp slt i64 %334, %310
  br i1 %335, label %312, label %336

336:
  %337 = icmp slt i64 %331, 2
  %338 = icmp sgt i64 %199, %330
  %339 = select i1 %337, i1 true, i1 %338
  br i1 %339, label %358, label %340

340:
  %341 = udiv i64 %330, %207
  %342 = call noundef i64 @llvm.smin.i64(i64 %331, i64 %341)
  %343 = call noundef i64 @llvm.smin.i64(i64 %209, i64 %342)
  %344 = icmp ugt i64 %343, 16
  br i1 %344, label %345, label %354

345:
  %346 = shl i64 %341, 4
  br label %347

347:
  %348 = phi i64 [ %343, %345 ], [ %352, %351 ]
  %349 = mul i64 %348, %348
  %350 = icmp ugt i64 %349, %346
  br i1 %350, label %351, label %354

351:
  %352 = add i64 %348, -1
  %353 = icmp ugt i64 %352, 16
  br i1 %353, label %347, label %357

354:
  %355 = phi i64 [ %343, %340 ], [ %348, %347 ]
  %356 = icmp sgt i64 %355, 1
  br i1 %356, label %357, label %363

357:
  store i64 %310, ptr %87, align 32
  br label %363

358:
  %359 = phi i64 [ 0, %309 ], [ %331, %336 ]
  %360 = phi i64 [ 0, %309 ], [ %330, %336 ]
  %361 = icmp sgt i64 %359, 0
  %362 = zext i1 %361 to i64
  br label %373

363:
  br i1 %344, label %364, label %373

364:
  %365 = shl i64 %341, 4
  br label %366

366:
  %367 = phi i64 [ %343, %364 ], [ %371, %370 ]
  %368 = mul i64 %367, %367
  %369 = icmp ugt i64 %368, %365
  br i1 %369, label %370, label %373

370:
  %371 = add i64 %367, -1
  %372 = icmp ugt i64 %371, 16
  br i1 %372, label %366, label %373

373:
  %374 = phi i64 [ %360, %358 ], [ %330, %363 ], [ %330, %366 ], [ %330, %370 ]
  %375 = phi i64 [ %362, %358 ], [ %343, %363 ], [ 16, %370 ], [ %367, %366 ]
  %376 = call noundef i64 @llvm.smax.i64(i64 %235, i64 %375)
  %377 = add i64 %374, %236
  %378 = icmp slt i64 %310, %2
  br i1 %378, label %233, label %240

379:
  %380 = phi i64 [ %277, %276 ], [ %285, %278 ]
  call fastcc void @judge(ptr noundef %260, i64 noundef %261, i64 noundef %242, i64 noundef %262, i64 noundef %259, i64 noundef %380)
  %381 = load i64, ptr %87, align 32
  br label %452

382:
  %383 = add i64 %113, 1
  call fastcc void @prepare(ptr noundef nonnull %9, i64 noundef %113, i64 noundef %383)
  %384 = load ptr, ptr %82, align 16
  %385 = load ptr, ptr %384, align 8
  %386 = shl i64 %226, 6
  call void @llvm.memset.p0.i64(ptr align 1 %385, i8 0, i64 %386, i1 false)
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %5) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %5, i8 0, i64 16, i1 false)
  %387 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %5) #12
  %388 = load i64, ptr %5, align 8
  %389 = mul i64 %388, 1000000000
  %390 = load i64, ptr %83, align 8
  %391 = add i64 %389, %390
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %5) #12
  store i64 %391, ptr %84, align 8
  store i64 0, ptr %85, align 16
  %392 = trunc i64 %226 to i32
  call void @GOMP_parallel(ptr noundef nonnull @run_driver, ptr noundef nonnull %70, i32 noundef %392, i32 noundef 0) #12
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %4) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %4, i8 0, i64 16, i1 false)
  %393 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %4) #12
  %394 = load i64, ptr %4, align 8
  %395 = mul i64 %394, 1000000000
  %396 = load i64, ptr %86, align 8
  %397 = add i64 %395, %396
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %4) #12
  %398 = load i64, ptr %85, align 16
  %399 = mul i64 %398, %226
  %400 = load ptr, ptr %9, align 64
  %401 = load i64, ptr %61, align 32
  %402 = load i64, ptr %84, align 8
  call fastcc void @judge(ptr noundef %400, i64 noundef %401, i64 noundef %226, i64 noundef %402, i64 noundef %397, i64 noundef %399)
  br label %452

403:
  %404 = phi i8 [ %194, %222 ], [ %203, %201 ]
  %405 = phi i64 [ %223, %222 ], [ %205, %201 ]
  %406 = icmp ne i64 %405, 1
  %407 = or i1 %142, %406
  br i1 %407, label %452, label %408

408:
  %409 = phi i64 [ %450, %446 ], [ %113, %403 ]
  %410 = add nsw i64 %409, 1
  call fastcc void @prepare(ptr noundef nonnull %9, i64 noundef %409, i64 noundef %410)
  %411 = load ptr, ptr %11, align 8
  %412 = getelementptr %struct.LaunchRecord, ptr %411, i64 %409, i32 8
  %413 = load i64, ptr %412, align 8
  %414 = icmp eq i64 %413, 0
  %415 = load i64, ptr %96, align 16
  %416 = select i1 %414, i64 %415, i64 1
  %417 = load ptr, ptr %74, align 8
  %418 = load i64, ptr %97, align 8
  %419 = getelementptr %struct.Prepared, ptr %70, i64 %418
  %420 = icmp ugt ptr %419, %70
  br i1 %420, label %421, label %446

421:
  %422 = phi i64 [ %440, %439 ], [ %418, %408 ]
  %423 = phi ptr [ %441, %439 ], [ %70, %408 ]
  %424 = getelementptr inbounds i8, ptr %423, i64 24
  %425 = load i64, ptr %424, align 8
  %426 = getelementptr inbounds i8, ptr %423, i64 32
  %427 = load i64, ptr %426, align 8
  %428 = add i64 %427, %425
  %429 = call i64 @llvm.umin.i64(i64 %428, i64 %416)
  %430 = icmp ult i64 %425, %429
  br i1 %430, label %431, label %439

431:
  %432 = load ptr, ptr %423, align 8
  %433 = getelementptr inbounds i8, ptr %423, i64 8
  %434 = load ptr, ptr %433, align 8
  %435 = getelementptr inbounds i8, ptr %423, i64 16
  %436 = load ptr, ptr %435, align 8
  %437 = sub i64 %429, %425
  call void %432(ptr noundef %434, ptr noundef %436, i64 noundef 0, i64 noundef %437, ptr noundef %417) #12
  %438 = load i64, ptr %97, align 8
  br label %439

439:
  %440 = phi i64 [ %438, %431 ], [ %422, %421 ]
  %441 = getelementptr i8, ptr %423, i64 40
  %442 = getelementptr %struct.Prepared, ptr %70, i64 %440
  %443 = icmp ult ptr %441, %442
  br i1 %443, label %421, label %444

444:
  %445 = load ptr, ptr %11, align 8
  br label %446

446:
  %447 = phi ptr [ %445, %444 ], [ %411, %408 ]
  %448 = getelementptr %struct.LaunchRecord, ptr %447, i64 %409, i32 7
  %449 = load i64, ptr %448, align 8
  %450 = add i64 %449, %409
  %451 = icmp slt i64 %450, %141
  br i1 %451, label %408, label %452

452:
  %453 = phi i8 [ %194, %382 ], [ %404, %403 ], [ %194, %379 ], [ %404, %446 ]
  %454 = phi i64 [ %141, %382 ], [ %141, %403 ], [ %381, %379 ], [ %141, %446 ]
  %455 = icmp slt i64 %454, %2
  br i1 %455, label %111, label %109

456:
  %457 = atomicrmw sub ptr %79, i64 1 monotonic, align 8
  br label %458

458:
  %459 = getelementptr inbounds i8, ptr %0, i64 56
  %460 = load i64, ptr %459, align 8
  call void @llvm.lifetime.end.p0(i64 576, ptr nonnull %9) #12
  ret i64 %460
}

; Function Attrs: nounwind uwtable(sync)
define noundef i32 @km_quick(ptr nocapture noundef readnone %0, ptr nocapture noundef readonly %1, i32 noundef %2, ptr nocapture noundef writeonly %3) local_unnamed_addr #0 {
  %5 = getelementptr inbounds i8, ptr %1, i64 8
  %6 = load ptr, ptr %5, align 8
  %7 = getelementptr i8, ptr %1, i64 40
  %8 = load ptr, ptr %7, align 8
  %9 = tail call fastcc i64 @settings()
  %10 = and i64 %9, 9223372036854775803
  %11 = load i64, ptr %8, align 8
  %12 = icmp eq i64 %10, %11
  br i1 %12, label %13, label %75

13:
  %14 = getelementptr i8, ptr %1, i64 24
  %15 = load i64, ptr %14, align 8
  %16 = getelementptr inbounds i8, ptr %8, i64 112
  %17 = load i64, ptr %16, align 8
  %18 = icmp eq i64 %15, %17
  br i1 %18, label %19, label %75

19:
  %20 = getelementptr inbounds i8, ptr %8, i64 40
  %21 = load i64, ptr %20, align 8
  %22 = shl i64 %21, 3
  %23 = alloca i8, i64 %22, align 16
  %24 = getelementptr i8, ptr %1, i64 56
  %25 = load ptr, ptr %24, align 8
  store ptr %25, ptr %23, align 16
  %26 = getelementptr inbounds i8, ptr %8, i64 72
  %27 = load ptr, ptr %26, align 8
  %28 = getelementptr i8, ptr %23, i64 8
  store ptr %27, ptr %28, align 8
  %29 = getelementptr inbounds i8, ptr %6, i64 8
  %30 = load ptr, ptr %29, align 8
  %31 = call fastcc i64 @unpack(ptr noundef nonnull %8, ptr noundef nonnull %23, ptr noundef %30)
  %32 = icmp eq i64 %31, 0
  br i1 %32, label %33, label %75

33:
  %34 = getelementptr inbounds i8, ptr %8, i64 184
  %35 = load ptr, ptr %34, align 8
  %36 = getelementptr inbounds i8, ptr %8, i64 168
  %37 = load i64, ptr %36, align 8
  %38 = icmp slt i64 %37, 1
  br i1 %38, label %68, label %39

39:
  %40 = getelementptr inbounds i8, ptr %8, i64 176
  %41 = load i64, ptr %40, align 8
  br label %45

42:
  %43 = icmp sge i64 %48, %37
  %44 = icmp eq i64 %48, %37
  br i1 %44, label %65, label %45

45:
  %46 = phi i1 [ false, %39 ], [ %43, %42 ]
  %47 = phi i64 [ 0, %39 ], [ %48, %42 ]
  %48 = add nuw nsw i64 %47, 1
  %49 = icmp slt i64 %48, %41
  br i1 %49, label %50, label %42

50:
  %51 = getelementptr i64, ptr %35, i64 %47
  %52 = load i64, ptr %51, align 8
  %53 = getelementptr ptr, ptr %23, i64 %52
  %54 = load ptr, ptr %53, align 8
  br label %58

55:
  %56 = add nuw nsw i64 %59, 1
  %57 = icmp slt i64 %56, %41
  br i1 %57, label %58, label %42

58:
  %59 = phi i64 [ %48, %50 ], [ %56, %55 ]
  %60 = getelementptr i64, ptr %35, i64 %59
  %61 = load i64, ptr %60, align 8
  %62 = getelementptr ptr, ptr %23, i64 %61
  %63 = load ptr, ptr %62, align 8
  %64 = icmp eq ptr %54, %63
  br i1 %64, label %65, label %55

65:
  %66 = phi i1 [ %46, %58 ], [ %43, %42 ]
  %67 = freeze i1 %66
  br i1 %67, label %68, label %75

68:
  %69 = load ptr, ptr %28, align 8
  %70 = and i64 %9, 4
  %71 = icmp ne i64 %70, 0
  %72 = getelementptr inbounds i8, ptr %8, i64 8
  %73 = load i64, ptr %72, align 8
  %74 = call fastcc i64 @call_objects(ptr noundef nonnull %8, ptr noundef %1, ptr noundef nonnull %23, ptr noundef %69, i1 noundef zeroext %71, i64 noundef %73)
  br label %75

75:
  %76 = phi i64 [ -1, %13 ], [ -1, %4 ], [ %74, %68 ], [ -4, %65 ], [ %31, %19 ]
  store i32 1, ptr %3, align 8
  %77 = getelementptr inbounds i8, ptr %3, i64 4
  store i32 0, ptr %77, align 4
  %78 = getelementptr inbounds i8, ptr %3, i64 8
  store i64 %76, ptr %78, align 8
  ret i32 0
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.start.p0(i64 immarg, ptr nocapture) #2

; Function Attrs: nounwind uwtable(sync)
define internal fastcc range(i64 0, -9223372036854775808) i64 @settings() unnamed_addr #0 {
  %1 = alloca i64, align 8
  %2 = tail call ptr @_ZN2at13globalContextEv() #12
  %3 = tail call i32 @_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE(ptr noundef %2, i32 noundef 2, i32 noundef 1) #12
  %4 = tail call i32 @_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE(ptr noundef %2, i32 noundef 2, i32 noundef 2) #12
  %5 = tail call i32 @_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE(ptr noundef %2, i32 noundef 2, i32 noundef 3) #12
  %6 = tail call i32 @_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE(i32 noundef 0) #12
  %7 = tail call i32 @_ZNK2at7Context23deterministicAlgorithmsEv(ptr noundef %2) #12
  %8 = tail call i32 @_ZN3c108GradMode10is_enabledEv() #12
  %9 = tail call i64 @_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv() #12
  %10 = tail call i64 @_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv() #12
  %11 = tail call i32 @_ZN3c1031get_default_dtype_as_scalartypeEv() #12
  %12 = tail call i32 @_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE(i32 noundef 0) #12
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %1) #12
  store i64 0, ptr %1, align 8
  %13 = call i32 @fegetmode(ptr noundef nonnull %1) #12
  %14 = load i64, ptr %1, align 8
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %1) #12
  %15 = load ptr, ptr getelementptr inbounds (i8, ptr @km_flags, i64 8), align 8
  %16 = load i64, ptr @km_flags, align 8
  %17 = icmp sgt i64 %16, 0
  br i1 %17, label %18, label %33

18:
  %19 = phi i64 [ %28, %18 ], [ 0, %0 ]
  %20 = phi i64 [ %27, %18 ], [ 0, %0 ]
  %21 = getelementptr ptr, ptr %15, i64 %19
  %22 = load ptr, ptr %21, align 8
  %23 = call i32 %22(ptr noundef %2) #12
  %24 = and i32 %23, 255
  %25 = zext nneg i32 %24 to i64
  %26 = shl i64 %25, %19
  %27 = or i64 %26, %20
  %28 = add nuw nsw i64 %19, 1
  %29 = icmp eq i64 %28, %16
  br i1 %29, label %30, label %18

30:
  %31 = shl i64 %27, 48
  %32 = and i64 %31, 9223090561878065152
  br label %33

33:
  %34 = phi i64 [ 0, %0 ], [ %32, %30 ]
  %35 = icmp eq i64 %9, 0
  %36 = select i1 %35, i64 0, i64 8
  %37 = and i32 %6, 1
  %38 = shl i32 %7, 1
  %39 = and i32 %38, 2
  %40 = or disjoint i32 %39, %37
  %41 = shl i32 %8, 2
  %42 = and i32 %41, 4
  %43 = or disjoint i32 %40, %42
  %44 = zext nneg i32 %43 to i64
  %45 = icmp eq i64 %10, 0
  %46 = select i1 %45, i64 0, i64 16
  %47 = shl i32 %11, 8
  %48 = and i32 %47, 65280
  %49 = zext nneg i32 %48 to i64
  %50 = shl i32 %12, 16
  %51 = and i32 %50, 16711680
  %52 = zext nneg i32 %51 to i64
  %53 = icmp sgt i32 %3, 1
  %54 = and i32 %3, 3
  %55 = select i1 %53, i32 %54, i32 0
  %56 = icmp sgt i32 %4, 1
  %57 = shl i32 %4, 2
  %58 = and i32 %57, 12
  %59 = select i1 %56, i32 %58, i32 0
  %60 = or disjoint i32 %55, %59
  %61 = icmp sgt i32 %5, 1
  %62 = shl i32 %5, 4
  %63 = and i32 %62, 48
  %64 = select i1 %61, i32 %63, i32 0
  %65 = or disjoint i32 %60, %64
  %66 = shl nuw nsw i32 %65, 24
  %67 = zext nneg i32 %66 to i64
  %68 = and i64 %14, 246565482528768
  %69 = shl i64 %14, 10
  %70 = and i64 %69, 30064771072
  %71 = or disjoint i64 %36, %67
  %72 = or disjoint i64 %71, %44
  %73 = or disjoint i64 %72, %46
  %74 = or i64 %73, %49
  %75 = or i64 %74, %52
  %76 = or i64 %75, %68
  %77 = or i64 %76, %70
  %78 = or i64 %77, %34
  ret i64 %78
}

; Function Attrs: nounwind uwtable(sync)
define internal fastcc noundef i64 @unpack(ptr nocapture noundef readonly %0, ptr noundef %1, ptr noundef readonly %2) unnamed_addr #0 {
  %4 = alloca i32, align 4
  %5 = alloca i64, align 8
  %6 = alloca ptr, align 8
  %7 = alloca i32, align 4
  %8 = alloca i64, align 8
  %9 = getelementptr inbounds i8, ptr %0, i64 32
  %10 = load ptr, ptr %9, align 8
  %11 = getelementptr inbounds i8, ptr %0, i64 24
  %12 = load i64, ptr %11, align 8
  %13 = icmp sgt i64 %12, 0
  br i1 %13, label %14, label %195

14:
  %15 = getelementptr inbounds i8, ptr %0, i64 104
  %16 = icmp eq ptr %2, null
  br label %17

17:
  %18 = phi i64 [ 0, %14 ], [ %191, %190 ]
  %19 = getelementptr %struct.StepRecord, ptr %10, i64 %18
  %20 = load i64, ptr %19, align 8
  %21 = icmp eq i64 %20, 5
  %22 = icmp sgt i64 %20, 10
  %23 = or i1 %21, %22
  br i1 %23, label %24, label %47

24:
  br i1 %16, label %190, label %25

25:
  %26 = getelementptr inbounds i8, ptr %19, i64 8
  %27 = load i64, ptr %26, align 8
  %28 = getelementptr ptr, ptr %1, i64 %27
  %29 = load ptr, ptr %28, align 8
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %8) #12
  %30 = getelementptr inbounds i8, ptr %19, i64 24
  %31 = load i64, ptr %30, align 8
  %32 = getelementptr i64, ptr %2, i64 %31
  %33 = load i64, ptr %32, align 8
  br i1 %21, label %34, label %40

34:
  call void @llvm.lifetime.start.p0(i64 4, ptr nonnull %7) #12
  %35 = call i64 @PyLong_AsLongLongAndOverflow(ptr noundef %29, ptr noundef nonnull %7) #12
  %36 = icmp eq i64 %35, %33
  %37 = load i32, ptr %7, align 4
  %38 = icmp eq i32 %37, 0
  %39 = select i1 %36, i1 %38, i1 false
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %7) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %8) #12
  br i1 %39, label %190, label %195

40:
  %41 = getelementptr inbounds i8, ptr %19, i64 32
  %42 = load i64, ptr %41, align 8
  %43 = call fastcc zeroext i1 @read_layout(ptr noundef nonnull readonly %0, ptr noundef %29, i64 noundef %20, i64 noundef %42, ptr noundef nonnull %8)
  %44 = load i64, ptr %8, align 8
  %45 = icmp eq i64 %44, %33
  %46 = select i1 %43, i1 %45, i1 false
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %8) #12
  br i1 %46, label %190, label %195

47:
  %48 = getelementptr inbounds i8, ptr %19, i64 8
  %49 = load i64, ptr %48, align 8
  %50 = getelementptr ptr, ptr %1, i64 %49
  %51 = load ptr, ptr %50, align 8
  %52 = getelementptr inbounds i8, ptr %19, i64 16
  %53 = load ptr, ptr %52, align 8
  switch i64 %20, label %195 [
    i64 0, label %54
    i64 1, label %58
    i64 2, label %60
    i64 3, label %80
    i64 4, label %100
    i64 6, label %135
    i64 7, label %145
    i64 8, label %153
    i64 9, label %171
    i64 10, label %179
  ]

54:
  %55 = getelementptr inbounds i8, ptr %51, i64 8
  %56 = load ptr, ptr %55, align 8
  %57 = icmp eq ptr %56, %53
  br i1 %57, label %190, label %195

58:
  %59 = icmp eq ptr %51, %53
  br i1 %59, label %190, label %195

60:
  %61 = getelementptr inbounds i8, ptr %51, i64 16
  %62 = load i64, ptr %61, align 8
  %63 = getelementptr inbounds i8, ptr %19, i64 24
  %64 = load i64, ptr %63, align 8
  %65 = icmp eq i64 %62, %64
  br i1 %65, label %66, label %195

66:
  %67 = load i64, ptr %15, align 8
  %68 = getelementptr i8, ptr %51, i64 %67
  %69 = getelementptr inbounds i8, ptr %19, i64 32
  %70 = load i64, ptr %69, align 8
  %71 = getelementptr ptr, ptr %1, i64 %70
  %72 = icmp sgt i64 %62, 0
  br i1 %72, label %73, label %190

73:
  %74 = phi i64 [ %78, %73 ], [ 0, %66 ]
  %75 = getelementptr ptr, ptr %68, i64 %74
  %76 = load ptr, ptr %75, align 8
  %77 = getelementptr ptr, ptr %71, i64 %74
  store ptr %76, ptr %77, align 8
  %78 = add nuw nsw i64 %74, 1
  %79 = icmp eq i64 %78, %62
  br i1 %79, label %190, label %73

80:
  %81 = getelementptr inbounds i8, ptr %51, i64 16
  %82 = load i64, ptr %81, align 8
  %83 = getelementptr inbounds i8, ptr %19, i64 24
  %84 = load i64, ptr %83, align 8
  %85 = icmp eq i64 %82, %84
  br i1 %85, label %86, label %195

86:
  %87 = getelementptr inbounds i8, ptr %51, i64 24
  %88 = load ptr, ptr %87, align 8
  %89 = getelementptr inbounds i8, ptr %19, i64 32
  %90 = load i64, ptr %89, align 8
  %91 = getelementptr ptr, ptr %1, i64 %90
  %92 = icmp sgt i64 %82, 0
  br i1 %92, label %93, label %190

93:
  %94 = phi i64 [ %98, %93 ], [ 0, %86 ]
  %95 = getelementptr ptr, ptr %88, i64 %94
  %96 = load ptr, ptr %95, align 8
  %97 = getelementptr ptr, ptr %91, i64 %94
  store ptr %96, ptr %97, align 8
  %98 = add nuw nsw i64 %94, 1
  %99 = icmp eq i64 %98, %82
  br i1 %99, label %190, label %93

100:
  %101 = getelementptr inbounds i8, ptr %51, i64 16
  %102 = load i64, ptr %101, align 8
  %103 = getelementptr inbounds i8, ptr %19, i64 24
  %104 = load i64, ptr %103, align 8
  %105 = icmp eq i64 %102, %104
  br i1 %105, label %106, label %195

106:
  %107 = getelementptr inbounds i8, ptr %19, i64 32
  %108 = load i64, ptr %107, align 8
  %109 = getelementptr ptr, ptr %1, i64 %108
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %5) #12
  store i64 0, ptr %5, align 8
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %6) #12
  %110 = icmp slt i64 %102, 1
  br i1 %110, label %111, label %112

111:
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %6) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %5) #12
  br label %190

112:
  %113 = call i32 @PyDict_Next(ptr noundef nonnull %51, ptr noundef nonnull %5, ptr noundef nonnull %6, ptr noundef %109) #12
  %114 = icmp eq i32 %113, 0
  br i1 %114, label %119, label %115

115:
  %116 = load ptr, ptr %6, align 8
  %117 = load ptr, ptr %53, align 8
  %118 = icmp eq ptr %116, %117
  br i1 %118, label %120, label %194

119:
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %6) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %5) #12
  br label %195

120:
  %121 = phi i64 [ %122, %128 ], [ 0, %115 ]
  %122 = add nuw nsw i64 %121, 1
  %123 = icmp eq i64 %122, %102
  br i1 %123, label %133, label %124

124:
  %125 = getelementptr ptr, ptr %109, i64 %122
  %126 = call i32 @PyDict_Next(ptr noundef %51, ptr noundef nonnull %5, ptr noundef nonnull %6, ptr noundef %125) #12
  %127 = icmp eq i32 %126, 0
  br i1 %127, label %133, label %128

128:
  %129 = load ptr, ptr %6, align 8
  %130 = getelementptr ptr, ptr %53, i64 %122
  %131 = load ptr, ptr %130, align 8
  %132 = icmp eq ptr %129, %131
  br i1 %132, label %120, label %133

133:
  %134 = icmp slt i64 %122, %102
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %6) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %5) #12
  br i1 %134, label %195, label %190

135:
  %136 = getelementptr inbounds i8, ptr %19, i64 32
  %137 = load i64, ptr %136, align 8
  %138 = getelementptr ptr, ptr %1, i64 %137
  %139 = load ptr, ptr %138, align 8
  %140 = icmp eq ptr %51, %139
  %141 = zext i1 %140 to i64
  %142 = getelementptr inbounds i8, ptr %19, i64 24
  %143 = load i64, ptr %142, align 8
  %144 = icmp eq i64 %143, %141
  br i1 %144, label %190, label %195

145:
  %146 = getelementptr inbounds i8, ptr %51, i64 16
  %147 = load i64, ptr %146, align 8
  %148 = ptrtoint ptr %53 to i64
  %149 = and i64 %147, %148
  %150 = getelementptr inbounds i8, ptr %19, i64 32
  %151 = load i64, ptr %150, align 8
  %152 = icmp eq i64 %149, %151
  br i1 %152, label %190, label %195

153:
  %154 = getelementptr inbounds i8, ptr %19, i64 24
  %155 = load i64, ptr %154, align 8
  %156 = call ptr @_PyObject_GetDictPtr(ptr noundef %51) #12
  %157 = icmp eq ptr %156, null
  br i1 %157, label %161, label %158

158:
  %159 = load ptr, ptr %156, align 8
  %160 = icmp eq ptr %159, null
  br i1 %160, label %161, label %165

161:
  %162 = getelementptr inbounds i8, ptr %19, i64 32
  %163 = load i64, ptr %162, align 8
  %164 = getelementptr ptr, ptr %1, i64 %163
  store ptr null, ptr %164, align 8
  br label %195

165:
  %166 = call ptr @_PyDict_GetItem_KnownHash(ptr noundef nonnull %159, ptr noundef %53, i64 noundef %155) #12
  %167 = getelementptr inbounds i8, ptr %19, i64 32
  %168 = load i64, ptr %167, align 8
  %169 = getelementptr ptr, ptr %1, i64 %168
  store ptr %166, ptr %169, align 8
  %170 = icmp eq ptr %166, null
  br i1 %170, label %195, label %190

171:
  %172 = getelementptr inbounds i8, ptr %19, i64 24
  %173 = load i64, ptr %172, align 8
  %174 = call ptr @_PyObject_GetDictPtr(ptr noundef %51) #12
  %175 = icmp eq ptr %174, null
  br i1 %175, label %190, label %176

176:
  %177 = load ptr, ptr %174, align 8
  %178 = icmp eq ptr %177, null
  br i1 %178, label %190, label %187

179:
  %180 = getelementptr inbounds i8, ptr %19, i64 32
  %181 = load i64, ptr %180, align 8
  call void @llvm.lifetime.start.p0(i64 4, ptr nonnull %4) #12
  %182 = call i64 @PyLong_AsLongLongAndOverflow(ptr noundef %51, ptr noundef nonnull %4) #12
  %183 = icmp eq i64 %182, %181
  %184 = load i32, ptr %4, align 4
  %185 = icmp eq i32 %184, 0
  %186 = select i1 %183, i1 %185, i1 false
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %4) #12
  br i1 %186, label %190, label %195

187:
  %188 = call ptr @_PyDict_GetItem_KnownHash(ptr noundef nonnull %177, ptr noundef %53, i64 noundef %173) #12
  %189 = icmp eq ptr %188, null
  br i1 %189, label %190, label %195

190:
  %191 = add nuw nsw i64 %18, 1
  %192 = load i64, ptr %11, align 8
  %193 = icmp slt i64 %191, %192
  br i1 %193, label %17, label %195

194:
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %6) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %5) #12
  br label %195

195:
  %196 = phi i64 [ -3, %119 ], [ -3, %161 ], [ 0, %3 ], [ -3, %194 ], [ 0, %190 ], [ -4, %40 ], [ -3, %187 ], [ -4, %34 ], [ -3, %179 ], [ -3, %165 ], [ -3, %145 ], [ -3, %135 ], [ -3, %58 ], [ -3, %54 ], [ -3, %133 ], [ -3, %60 ], [ -3, %80 ], [ -3, %100 ], [ -3, %47 ]
  ret i64 %196
}

; Function Attrs: nounwind uwtable(sync)
define internal fastcc i64 @call_objects(ptr nocapture noundef readonly %0, ptr nocapture noundef readonly %1, ptr nocapture noundef readonly %2, ptr noundef %3, i1 noundef zeroext %4, i64 noundef %5) unnamed_addr #0 {
  %7 = alloca i32, align 4
  %8 = alloca i32, align 4
  %9 = alloca i32, align 4
  %10 = alloca i64, align 8
  %11 = alloca ptr, align 8
  %12 = alloca ptr, align 8
  %13 = alloca ptr, align 8
  %14 = getelementptr inbounds i8, ptr %1, i64 8
  %15 = load ptr, ptr %14, align 8
  %16 = load ptr, ptr %15, align 8
  %17 = getelementptr inbounds i8, ptr %16, i64 8
  %18 = load ptr, ptr %17, align 8
  %19 = getelementptr inbounds i8, ptr %0, i64 64
  %20 = load ptr, ptr %19, align 8
  %21 = getelementptr inbounds i8, ptr %0, i64 128
  %22 = load ptr, ptr %21, align 8
  %23 = getelementptr i8, ptr %15, i64 160
  %24 = getelementptr inbounds i8, ptr %0, i64 48
  %25 = load i64, ptr %24, align 8
  %26 = icmp slt i64 %25, 1
  br i1 %26, label %166, label %27

27:
  %28 = getelementptr inbounds i8, ptr %0, i64 56
  %29 = getelementptr inbounds i8, ptr %15, i64 8
  %30 = getelementptr inbounds i8, ptr %0, i64 80
  %31 = getelementptr inbounds i8, ptr %0, i64 88
  %32 = getelementptr inbounds i8, ptr %0, i64 96
  br label %33

33:
  %34 = phi i64 [ 0, %27 ], [ %163, %162 ]
  %35 = load ptr, ptr %28, align 8
  %36 = getelementptr i64, ptr %35, i64 %34
  %37 = load i64, ptr %36, align 8
  %38 = getelementptr ptr, ptr %2, i64 %37
  %39 = load ptr, ptr %38, align 8
  %40 = getelementptr %struct.InputRecord, ptr %18, i64 %34
  %41 = load i64, ptr %40, align 8
  %42 = getelementptr ptr, ptr %23, i64 %41
  %43 = load ptr, ptr %29, align 8
  %44 = getelementptr i64, ptr %20, i64 %34
  %45 = load i64, ptr %44, align 8
  %46 = getelementptr inbounds i8, ptr %39, i64 8
  %47 = load ptr, ptr %46, align 8
  %48 = load ptr, ptr %30, align 8
  %49 = icmp eq ptr %47, %48
  br i1 %49, label %53, label %50

50:
  %51 = load ptr, ptr %31, align 8
  %52 = icmp eq ptr %47, %51
  br i1 %52, label %53, label %246

53:
  %54 = load i64, ptr %32, align 8
  %55 = getelementptr i8, ptr %39, i64 %54
  call void @llvm.lifetime.start.p0(i64 4, ptr nonnull %7) #12
  store i32 0, ptr %7, align 4
  call void @llvm.lifetime.start.p0(i64 4, ptr nonnull %8) #12
  store i32 0, ptr %8, align 4
  call void @llvm.lifetime.start.p0(i64 4, ptr nonnull %9) #12
  store i32 0, ptr %9, align 4
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %10) #12
  store i64 0, ptr %10, align 8
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %11) #12
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %12) #12
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %13) #12
  %56 = load ptr, ptr %55, align 8
  %57 = icmp eq ptr %56, null
  br i1 %57, label %106, label %58

58:
  %59 = call i32 @_ZN2at6native6is_negERKNS_6TensorE(ptr noundef nonnull %55) #12
  %60 = and i32 %59, 255
  %61 = icmp eq i32 %60, 0
  br i1 %61, label %62, label %106

62:
  %63 = call i32 @aoti_torch_get_device_type(ptr noundef nonnull %55, ptr noundef nonnull %7) #12
  %64 = icmp ne i32 %63, 0
  %65 = load i32, ptr %7, align 4
  %66 = icmp ne i32 %65, 0
  %67 = select i1 %64, i1 true, i1 %66
  br i1 %67, label %106, label %68

68:
  %69 = call i32 @aoti_torch_get_layout(ptr noundef nonnull %55, ptr noundef nonnull %8) #12
  %70 = icmp ne i32 %69, 0
  %71 = load i32, ptr %8, align 4
  %72 = icmp ne i32 %71, 0
  %73 = select i1 %70, i1 true, i1 %72
  br i1 %73, label %106, label %74

74:
  %75 = call i32 @aoti_torch_get_dtype(ptr noundef nonnull %55, ptr noundef nonnull %9) #12
  %76 = icmp eq i32 %75, 0
  %77 = load i32, ptr %9, align 4
  %78 = sext i32 %77 to i64
  %79 = icmp eq i64 %45, %78
  %80 = select i1 %76, i1 %79, i1 false
  br i1 %80, label %81, label %106

81:
  %82 = call i32 @aoti_torch_get_dim(ptr noundef nonnull %55, ptr noundef nonnull %10) #12
  %83 = icmp eq i32 %82, 0
  br i1 %83, label %84, label %106

84:
  %85 = load i64, ptr %10, align 8
  %86 = getelementptr inbounds i8, ptr %40, i64 8
  %87 = load i64, ptr %86, align 8
  %88 = icmp eq i64 %85, %87
  br i1 %88, label %89, label %106

89:
  %90 = call i32 @aoti_torch_get_data_ptr(ptr noundef nonnull %55, ptr noundef nonnull %13) #12
  %91 = icmp eq i32 %90, 0
  br i1 %91, label %92, label %106

92:
  %93 = load ptr, ptr %13, align 8
  %94 = ptrtoint ptr %93 to i64
  %95 = getelementptr inbounds i8, ptr %40, i64 20
  %96 = load i32, ptr %95, align 4
  %97 = sext i32 %96 to i64
  %98 = and i64 %97, %94
  %99 = icmp eq i64 %98, 0
  br i1 %99, label %100, label %106

100:
  %101 = call i32 @aoti_torch_get_sizes(ptr noundef nonnull %55, ptr noundef nonnull %11) #12
  %102 = icmp eq i32 %101, 0
  br i1 %102, label %103, label %106

103:
  %104 = call i32 @aoti_torch_get_strides(ptr noundef nonnull %55, ptr noundef nonnull %12) #12
  %105 = icmp eq i32 %104, 0
  br i1 %105, label %107, label %106

106:
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %13) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %12) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %11) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %10) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %9) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %8) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %7) #12
  br label %246

107:
  %108 = load ptr, ptr %13, align 8
  store ptr %108, ptr %42, align 8
  %109 = load ptr, ptr %11, align 8
  %110 = load ptr, ptr %12, align 8
  %111 = icmp ne ptr %108, null
  %112 = getelementptr inbounds i8, ptr %40, i64 24
  %113 = load ptr, ptr %112, align 8
  %114 = load i64, ptr %86, align 8
  %115 = getelementptr i64, ptr %113, i64 %114
  %116 = icmp sgt i64 %114, 0
  br i1 %116, label %117, label %144

117:
  %118 = phi i64 [ %142, %129 ], [ 0, %107 ]
  %119 = phi i1 [ %141, %129 ], [ false, %107 ]
  %120 = phi i1 [ %139, %129 ], [ true, %107 ]
  %121 = getelementptr i64, ptr %109, i64 %118
  %122 = load i64, ptr %121, align 8
  %123 = getelementptr i64, ptr %113, i64 %118
  %124 = load i64, ptr %123, align 8
  %125 = getelementptr i64, ptr %43, i64 %124
  %126 = load i64, ptr %125, align 8
  %127 = icmp eq i64 %122, %126
  br i1 %127, label %129, label %128

128:
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %13) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %12) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %11) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %10) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %9) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %8) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %7) #12
  br label %246

129:
  %130 = getelementptr i64, ptr %110, i64 %118
  %131 = load i64, ptr %130, align 8
  %132 = getelementptr i64, ptr %115, i64 %118
  %133 = load i64, ptr %132, align 8
  %134 = getelementptr i64, ptr %43, i64 %133
  %135 = load i64, ptr %134, align 8
  %136 = icmp eq i64 %131, %135
  %137 = icmp eq i64 %122, 1
  %138 = or i1 %137, %136
  %139 = and i1 %120, %138
  %140 = icmp eq i64 %122, 0
  %141 = or i1 %119, %140
  %142 = add nuw nsw i64 %118, 1
  %143 = icmp eq i64 %142, %114
  br i1 %143, label %144, label %117

144:
  %145 = phi i1 [ true, %107 ], [ %139, %129 ]
  %146 = phi i1 [ false, %107 ], [ %141, %129 ]
  %147 = and i1 %111, %145
  %148 = select i1 %147, i1 true, i1 %146
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %13) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %12) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %11) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %10) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %9) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %8) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %7) #12
  br i1 %148, label %149, label %246

149:
  br i1 %4, label %150, label %162

150:
  %151 = getelementptr i64, ptr %22, i64 %34
  %152 = load i64, ptr %151, align 8
  %153 = and i64 %152, 1
  %154 = icmp eq i64 %153, 0
  br i1 %154, label %162, label %155

155:
  %156 = load i64, ptr %32, align 8
  %157 = getelementptr i8, ptr %39, i64 %156
  %158 = load ptr, ptr %157, align 8
  %159 = call i32 @_ZNK3c1010TensorImpl13requires_gradEv(ptr noundef %158) #12
  %160 = and i32 %159, 255
  %161 = icmp eq i32 %160, 0
  br i1 %161, label %162, label %246

162:
  %163 = add nuw nsw i64 %34, 1
  %164 = load i64, ptr %24, align 8
  %165 = icmp slt i64 %163, %164
  br i1 %165, label %33, label %166

166:
  %167 = call fastcc zeroext i1 @no_alias(ptr noundef nonnull %0, ptr noundef nonnull %15, ptr noundef %2)
  br i1 %167, label %168, label %246

168:
  %169 = getelementptr i8, ptr %1, i64 24
  %170 = load ptr, ptr %169, align 8
  %171 = getelementptr inbounds i8, ptr %0, i64 16
  %172 = load ptr, ptr %171, align 8
  %173 = call fastcc i64 @validate_bound(ptr noundef nonnull %15, ptr noundef %170, ptr noundef %3, ptr noundef %172, i64 noundef %5)
  %174 = icmp eq i64 %173, 0
  br i1 %174, label %178, label %175

175:
  %176 = icmp eq i64 %173, 1
  %177 = select i1 %176, i64 -2, i64 -4
  br label %246

178:
  %179 = getelementptr i8, ptr %1, i64 104
  %180 = load ptr, ptr %179, align 8
  %181 = load i64, ptr %24, align 8
  %182 = getelementptr inbounds i8, ptr %0, i64 184
  %183 = load ptr, ptr %182, align 8
  %184 = icmp eq ptr %180, null
  br i1 %184, label %214, label %185

185:
  %186 = icmp sgt i64 %181, 0
  br i1 %186, label %187, label %189

187:
  %188 = getelementptr inbounds i8, ptr %0, i64 56
  br label %193

189:
  %190 = getelementptr inbounds i8, ptr %0, i64 168
  %191 = load i64, ptr %190, align 8
  %192 = icmp sgt i64 %191, 0
  br i1 %192, label %203, label %214

193:
  %194 = phi i64 [ 0, %187 ], [ %201, %193 ]
  %195 = load ptr, ptr %188, align 8
  %196 = getelementptr i64, ptr %195, i64 %194
  %197 = load i64, ptr %196, align 8
  %198 = getelementptr ptr, ptr %2, i64 %197
  %199 = load ptr, ptr %198, align 8
  call void @Py_IncRef(ptr noundef %199) #12
  %200 = call i32 @PyList_SetItem(ptr noundef nonnull %180, i64 noundef %194, ptr noundef %199) #12
  %201 = add nuw nsw i64 %194, 1
  %202 = icmp eq i64 %201, %181
  br i1 %202, label %189, label %193

203:
  %204 = phi i64 [ %211, %203 ], [ 0, %189 ]
  %205 = add i64 %204, %181
  %206 = getelementptr i64, ptr %183, i64 %204
  %207 = load i64, ptr %206, align 8
  %208 = getelementptr ptr, ptr %2, i64 %207
  %209 = load ptr, ptr %208, align 8
  call void @Py_IncRef(ptr noundef %209) #12
  %210 = call i32 @PyList_SetItem(ptr noundef nonnull %180, i64 noundef %205, ptr noundef %209) #12
  %211 = add nuw nsw i64 %204, 1
  %212 = load i64, ptr %190, align 8
  %213 = icmp slt i64 %211, %212
  br i1 %213, label %203, label %214

214:
  %215 = getelementptr i8, ptr %1, i64 72
  %216 = load ptr, ptr %215, align 8
  %217 = load ptr, ptr %15, align 8
  %218 = getelementptr inbounds i8, ptr %217, i64 24
  %219 = load ptr, ptr %218, align 8
  %220 = icmp eq ptr %216, null
  br i1 %220, label %242, label %221

221:
  %222 = getelementptr inbounds i8, ptr %217, i64 16
  %223 = load i64, ptr %222, align 8
  %224 = icmp sgt i64 %223, 0
  br i1 %224, label %225, label %242

225:
  %226 = getelementptr inbounds i8, ptr %216, i64 24
  %227 = getelementptr inbounds i8, ptr %0, i64 96
  br label %228

228:
  %229 = phi i64 [ 0, %225 ], [ %239, %228 ]
  %230 = load ptr, ptr %226, align 8
  %231 = getelementptr ptr, ptr %230, i64 %229
  %232 = load ptr, ptr %231, align 8
  %233 = load i64, ptr %227, align 8
  %234 = getelementptr i8, ptr %232, i64 %233
  %235 = getelementptr i64, ptr %219, i64 %229
  %236 = load i64, ptr %235, align 8
  %237 = getelementptr ptr, ptr %23, i64 %236
  %238 = call i32 @aoti_torch_get_data_ptr(ptr noundef %234, ptr noundef %237) #12
  %239 = add nuw nsw i64 %229, 1
  %240 = load i64, ptr %222, align 8
  %241 = icmp slt i64 %239, %240
  br i1 %241, label %228, label %242

242:
  %243 = getelementptr i8, ptr %1, i64 88
  %244 = load i64, ptr %243, align 8
  %245 = call fastcc i64 @run(ptr noundef nonnull %15, i64 noundef 0, i64 noundef %244)
  br label %246

246:
  %247 = phi i64 [ -4, %166 ], [ %177, %175 ], [ %245, %242 ], [ -4, %106 ], [ -4, %128 ], [ -4, %144 ], [ -4, %155 ], [ -4, %50 ]
  ret i64 %247
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.end.p0(i64 immarg, ptr nocapture) #2

; Function Attrs: nounwind uwtable(sync)
define noundef i32 @km_symbols(ptr nocapture noundef readnone %0, ptr nocapture noundef readonly %1, i32 noundef %2, ptr nocapture noundef writeonly %3) local_unnamed_addr #0 {
  %5 = alloca i32, align 4
  %6 = getelementptr inbounds i8, ptr %1, i64 8
  %7 = load ptr, ptr %6, align 8
  %8 = load i64, ptr %7, align 8
  %9 = icmp slt i64 %8, 0
  br i1 %9, label %65, label %10

10:
  %11 = getelementptr inbounds i8, ptr %7, i64 40
  %12 = load i64, ptr %11, align 8
  %13 = shl i64 %12, 3
  %14 = alloca i8, i64 %13, align 16
  %15 = getelementptr i8, ptr %1, i64 24
  %16 = load ptr, ptr %15, align 8
  store ptr %16, ptr %14, align 16
  %17 = getelementptr inbounds i8, ptr %7, i64 72
  %18 = load ptr, ptr %17, align 8
  %19 = getelementptr i8, ptr %14, i64 8
  store ptr %18, ptr %19, align 8
  %20 = call fastcc i64 @unpack(ptr noundef nonnull %7, ptr noundef nonnull %14, ptr noundef null)
  %21 = getelementptr i8, ptr %1, i64 40
  %22 = load ptr, ptr %21, align 8
  %23 = getelementptr inbounds i8, ptr %7, i64 160
  %24 = load ptr, ptr %23, align 8
  %25 = getelementptr inbounds i8, ptr %7, i64 152
  %26 = icmp eq i64 %20, 0
  br i1 %26, label %27, label %65

27:
  %28 = load i64, ptr %25, align 8
  %29 = icmp sgt i64 %28, 0
  br i1 %29, label %34, label %65

30:
  %31 = add nuw nsw i64 %35, 1
  %32 = load i64, ptr %25, align 8
  %33 = icmp slt i64 %31, %32
  br i1 %33, label %34, label %65

34:
  %35 = phi i64 [ %31, %30 ], [ 0, %27 ]
  %36 = getelementptr %struct.SymbolRecord, ptr %24, i64 %35
  %37 = getelementptr i64, ptr %22, i64 %35
  %38 = load i64, ptr %36, align 8
  %39 = getelementptr ptr, ptr %14, i64 %38
  %40 = load ptr, ptr %39, align 8
  call void @llvm.lifetime.start.p0(i64 4, ptr nonnull %5) #12
  %41 = getelementptr inbounds i8, ptr %36, i64 8
  %42 = load i64, ptr %41, align 8
  %43 = icmp eq i64 %42, 5
  br i1 %43, label %44, label %48

44:
  %45 = call i64 @PyLong_AsLongLongAndOverflow(ptr noundef %40, ptr noundef nonnull %5) #12
  store i64 %45, ptr %37, align 8
  %46 = load i32, ptr %5, align 4
  %47 = icmp eq i32 %46, 0
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %5) #12
  br i1 %47, label %30, label %65

48:
  %49 = getelementptr inbounds i8, ptr %36, i64 16
  %50 = load i64, ptr %49, align 8
  %51 = call fastcc zeroext i1 @read_layout(ptr noundef nonnull readonly %7, ptr noundef %40, i64 noundef %42, i64 noundef %50, ptr noundef %37)
  br i1 %51, label %52, label %64

52:
  %53 = getelementptr inbounds i8, ptr %36, i64 24
  %54 = load i64, ptr %53, align 8
  %55 = icmp slt i64 %54, 1
  br i1 %55, label %64, label %56

56:
  %57 = load i64, ptr %37, align 8
  %58 = getelementptr inbounds i8, ptr %36, i64 32
  %59 = load i64, ptr %58, align 8
  %60 = icmp slt i64 %57, %59
  br i1 %60, label %64, label %61

61:
  %62 = sub i64 %57, %59
  %63 = sdiv i64 %62, %54
  store i64 %63, ptr %37, align 8
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %5) #12
  br label %30

64:
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %5) #12
  br label %65

65:
  %66 = phi i64 [ -1, %4 ], [ %20, %10 ], [ -4, %64 ], [ 0, %27 ], [ 0, %30 ], [ -4, %44 ]
  store i32 1, ptr %3, align 8
  %67 = getelementptr inbounds i8, ptr %3, i64 4
  store i32 0, ptr %67, align 4
  %68 = getelementptr inbounds i8, ptr %3, i64 8
  store i64 %66, ptr %68, align 8
  ret i32 0
}

; Function Attrs: nounwind uwtable(sync)
define noundef i32 @km_objects(ptr nocapture noundef readnone %0, ptr nocapture noundef readonly %1, i32 noundef %2, ptr nocapture noundef writeonly %3) local_unnamed_addr #0 {
  %5 = getelementptr i8, ptr %1, i64 40
  %6 = load ptr, ptr %5, align 8
  %7 = getelementptr i8, ptr %1, i64 56
  %8 = load ptr, ptr %7, align 8
  %9 = getelementptr inbounds i8, ptr %6, i64 104
  %10 = load i64, ptr %9, align 8
  %11 = getelementptr i8, ptr %8, i64 %10
  %12 = tail call fastcc i64 @call_objects(ptr noundef %6, ptr noundef %1, ptr noundef %11, ptr noundef %8, i1 noundef zeroext false, i64 noundef 0)
  store i32 1, ptr %3, align 8
  %13 = getelementptr inbounds i8, ptr %3, i64 4
  store i32 0, ptr %13, align 4
  %14 = getelementptr inbounds i8, ptr %3, i64 8
  store i64 %12, ptr %14, align 8
  ret i32 0
}

; Function Attrs: nounwind uwtable(sync)
define noundef i32 @km_settings(ptr nocapture noundef readnone %0, ptr nocapture noundef readnone %1, i32 noundef %2, ptr nocapture noundef writeonly %3) local_unnamed_addr #0 {
  %5 = tail call fastcc i64 @settings()
  store i32 1, ptr %3, align 8
  %6 = getelementptr inbounds i8, ptr %3, i64 4
  store i32 0, ptr %6, align 4
  %7 = getelementptr inbounds i8, ptr %3, i64 8
  store i64 %5, ptr %7, align 8
  ret i32 0
}

; Function Attrs: nounwind uwtable(sync)
define noundef i32 @km_guards_hold(ptr nocapture noundef readnone %0, ptr nocapture noundef readonly %1, i32 noundef %2, ptr nocapture noundef writeonly %3) local_unnamed_addr #0 {
  %5 = getelementptr inbounds i8, ptr %1, i64 8
  %6 = load ptr, ptr %5, align 8
  %7 = getelementptr inbounds i8, ptr %6, i64 16
  %8 = load ptr, ptr %7, align 8
  %9 = getelementptr inbounds i8, ptr %6, i64 8
  %10 = load i64, ptr %9, align 8
  %11 = tail call fastcc zeroext i1 @guards_hold(ptr noundef %8, i64 noundef %10)
  %12 = zext i1 %11 to i64
  store i32 1, ptr %3, align 8
  %13 = getelementptr inbounds i8, ptr %3, i64 4
  store i32 0, ptr %13, align 4
  %14 = getelementptr inbounds i8, ptr %3, i64 8
  store i64 %12, ptr %14, align 8
  ret i32 0
}

; Function Attrs: nounwind uwtable(sync)
define internal fastcc zeroext i1 @guards_hold(ptr nocapture noundef readonly %0, i64 noundef %1) unnamed_addr #0 {
  %3 = icmp slt i64 %1, 1
  br i1 %3, label %55, label %4

4:
  %5 = add nsw i64 %1, -1
  br label %6

6:
  %7 = phi i1 [ false, %4 ], [ %53, %51 ]
  %8 = phi i64 [ 0, %4 ], [ %52, %51 ]
  %9 = add nuw i64 %8, 16
  %10 = tail call noundef i64 @llvm.smin.i64(i64 %9, i64 %5)
  %11 = getelementptr %struct.WatchRecord, ptr %0, i64 %10, i32 1
  %12 = load ptr, ptr %11, align 8
  %13 = getelementptr inbounds i8, ptr %12, i64 16
  tail call void @llvm.prefetch.p0(ptr nonnull %13, i32 0, i32 3, i32 1)
  %14 = getelementptr %struct.WatchRecord, ptr %0, i64 %8
  %15 = getelementptr inbounds i8, ptr %14, i64 8
  %16 = load ptr, ptr %15, align 8
  %17 = load i64, ptr %14, align 8
  switch i64 %17, label %55 [
    i64 0, label %18
    i64 1, label %18
    i64 2, label %26
    i64 3, label %36
  ]

18:
  %19 = getelementptr inbounds i8, ptr %14, i64 24
  %20 = load i64, ptr %19, align 8
  %21 = getelementptr i8, ptr %16, i64 %20
  %22 = load i64, ptr %21, align 8
  %23 = getelementptr inbounds i8, ptr %14, i64 32
  %24 = load i64, ptr %23, align 8
  %25 = icmp eq i64 %22, %24
  br i1 %25, label %51, label %55

26:
  %27 = getelementptr inbounds i8, ptr %14, i64 16
  %28 = load ptr, ptr %27, align 8
  %29 = getelementptr inbounds i8, ptr %14, i64 24
  %30 = load i64, ptr %29, align 8
  %31 = tail call ptr @_PyDict_GetItem_KnownHash(ptr noundef %16, ptr noundef %28, i64 noundef %30) #12
  %32 = ptrtoint ptr %31 to i64
  %33 = getelementptr inbounds i8, ptr %14, i64 32
  %34 = load i64, ptr %33, align 8
  %35 = icmp eq i64 %34, %32
  br i1 %35, label %51, label %55

36:
  %37 = getelementptr inbounds i8, ptr %14, i64 24
  %38 = load i64, ptr %37, align 8
  %39 = getelementptr inbounds i8, ptr %16, i64 16
  %40 = load i64, ptr %39, align 8
  %41 = icmp ult i64 %38, %40
  br i1 %41, label %42, label %55

42:
  %43 = getelementptr inbounds i8, ptr %16, i64 24
  %44 = load ptr, ptr %43, align 8
  %45 = getelementptr ptr, ptr %44, i64 %38
  %46 = load ptr, ptr %45, align 8
  %47 = ptrtoint ptr %46 to i64
  %48 = getelementptr inbounds i8, ptr %14, i64 32
  %49 = load i64, ptr %48, align 8
  %50 = icmp eq i64 %49, %47
  br i1 %50, label %51, label %55

51:
  %52 = add nuw nsw i64 %8, 1
  %53 = icmp sge i64 %52, %1
  %54 = icmp eq i64 %52, %1
  br i1 %54, label %55, label %6

55:
  %56 = phi i1 [ true, %2 ], [ %7, %6 ], [ %7, %36 ], [ %7, %18 ], [ %7, %26 ], [ %53, %51 ], [ %7, %42 ]
  ret i1 %56
}

; Function Attrs: nofree norecurse nosync nounwind memory(readwrite, inaccessiblemem: none) uwtable(sync)
define noundef i32 @km_digest(ptr nocapture noundef readnone %0, ptr nocapture noundef readonly %1, i32 noundef %2, ptr nocapture noundef writeonly %3) local_unnamed_addr #3 {
  %5 = alloca <16 x i64>, align 128
  %6 = getelementptr inbounds i8, ptr %1, i64 8
  %7 = load ptr, ptr %6, align 8
  %8 = getelementptr i8, ptr %1, i64 24
  %9 = load i64, ptr %8, align 8
  %10 = lshr i64 %9, 7
  call void @llvm.lifetime.start.p0(i64 128, ptr nonnull %5)
  store <16 x i64> zeroinitializer, ptr %5, align 128
  %11 = and i64 %9, -128
  %12 = getelementptr i8, ptr %7, i64 %11
  %13 = and i64 %9, 127
  call void @llvm.memcpy.p0.p0.i64(ptr nonnull align 128 %5, ptr readonly align 1 %12, i64 %13, i1 false)
  br label %14

14:
  %15 = phi i64 [ 0, %4 ], [ %27, %14 ]
  %16 = phi <16 x i64> [ <i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15, i64 16>, %4 ], [ %26, %14 ]
  %17 = icmp ult i64 %15, %10
  %18 = shl nuw i64 %15, 7
  %19 = getelementptr i8, ptr %7, i64 %18
  %20 = select i1 %17, ptr %19, ptr %5
  %21 = load <16 x i64>, ptr %20, align 1
  %22 = xor <16 x i64> %21, %16
  %23 = mul <16 x i64> %22, <i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825>
  %24 = mul <16 x i64> %22, <i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872>
  %25 = lshr <16 x i64> %23, <i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35>
  %26 = or disjoint <16 x i64> %25, %24
  %27 = add nuw nsw i64 %15, 1
  %28 = icmp eq i64 %15, %10
  br i1 %28, label %29, label %14

29:
  %30 = phi i32 [ %38, %29 ], [ 0, %14 ]
  %31 = phi i64 [ %37, %29 ], [ %9, %14 ]
  %32 = extractelement <16 x i64> %26, i32 %30
  %33 = xor i64 %32, %31
  %34 = mul i64 %33, -7046029288634856825
  %35 = mul i64 %33, -4398357382984368128
  %36 = lshr i64 %34, 33
  %37 = or disjoint i64 %36, %35
  %38 = add nuw nsw i32 %30, 1
  %39 = icmp eq i32 %38, 16
  br i1 %39, label %40, label %29

40:
  call void @llvm.lifetime.end.p0(i64 128, ptr nonnull %5)
  store i32 1, ptr %3, align 8
  %41 = getelementptr inbounds i8, ptr %3, i64 4
  store i32 0, ptr %41, align 4
  %42 = getelementptr inbounds i8, ptr %3, i64 8
  store i64 %37, ptr %42, align 8
  ret i32 0
}

; Function Attrs: nounwind uwtable(sync)
define noundef i32 @km_repeat(ptr nocapture noundef readnone %0, ptr nocapture noundef readonly %1, i32 noundef %2, ptr nocapture noundef writeonly %3) local_unnamed_addr #0 {
  %5 = getelementptr inbounds i8, ptr %1, i64 8
  %6 = load ptr, ptr %5, align 8
  %7 = getelementptr i8, ptr %1, i64 24
  %8 = load i64, ptr %7, align 8
  %9 = icmp sgt i64 %8, 0
  br i1 %9, label %15, label %10

10:
  %11 = getelementptr inbounds i8, ptr %6, i64 56
  %12 = load i64, ptr %11, align 8
  store i32 1, ptr %3, align 8
  %13 = getelementptr inbounds i8, ptr %3, i64 4
  store i32 0, ptr %13, align 4
  %14 = getelementptr inbounds i8, ptr %3, i64 8
  store i64 %12, ptr %14, align 8
  ret i32 0

15:
  %16 = phi i64 [ %21, %15 ], [ 0, %4 ]
  %17 = load ptr, ptr %6, align 8
  %18 = getelementptr inbounds i8, ptr %17, i64 48
  %19 = load i64, ptr %18, align 8
  %20 = tail call fastcc i64 @run(ptr noundef nonnull %6, i64 noundef 0, i64 noundef %19)
  %21 = add nuw nsw i64 %16, 1
  %22 = load i64, ptr %7, align 8
  %23 = icmp slt i64 %21, %22
  br i1 %23, label %15, label %10
}

; Function Attrs: mustprogress nocallback nofree nounwind willreturn memory(argmem: write)
declare void @llvm.memset.p0.i64(ptr nocapture writeonly, i8, i64, i1 immarg) #4

; Function Attrs: mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite)
declare void @llvm.memcpy.p0.p0.i64(ptr noalias nocapture writeonly, ptr noalias nocapture readonly, i64, i1 immarg) #5

; Function Attrs: nounwind uwtable(sync)
define internal fastcc i64 @validate_bound(ptr noundef %0, ptr noundef %1, ptr noundef %2, ptr noundef %3, i64 noundef %4) unnamed_addr #0 {
  %6 = alloca %struct.Time, align 8
  %7 = alloca %struct.Time, align 8
  %8 = alloca %struct.Time, align 8
  %9 = alloca %struct.rusage, align 8
  %10 = alloca %struct.Check, align 64
  %11 = load ptr, ptr %0, align 8
  %12 = icmp eq ptr %1, null
  br i1 %12, label %37, label %13

13:
  %14 = getelementptr inbounds i8, ptr %1, i64 48
  %15 = load i64, ptr %14, align 8
  %16 = icmp eq i64 %15, 0
  br i1 %16, label %37, label %17

17:
  %18 = getelementptr inbounds i8, ptr %1, i64 40
  %19 = load ptr, ptr %18, align 8
  call void @llvm.lifetime.start.p0(i64 144, ptr nonnull %9) #12
  %20 = getelementptr inbounds i8, ptr %19, i64 16
  %21 = load i64, ptr %20, align 8
  %22 = icmp eq i64 %21, 0
  br i1 %22, label %35, label %23

23:
  %24 = call i32 @getrusage(i32 noundef 0, ptr noundef nonnull %9) #12
  %25 = icmp eq i32 %24, 0
  br i1 %25, label %26, label %35

26:
  %27 = load i64, ptr %20, align 8
  %28 = shl i64 %27, 48
  %29 = getelementptr inbounds i8, ptr %9, i64 64
  %30 = load i64, ptr %29, align 8
  %31 = getelementptr inbounds i8, ptr %9, i64 72
  %32 = load i64, ptr %31, align 8
  %33 = add i64 %32, %30
  %34 = or i64 %33, %28
  br label %35

35:
  %36 = phi i64 [ %34, %26 ], [ 0, %23 ], [ 0, %17 ]
  call void @llvm.lifetime.end.p0(i64 144, ptr nonnull %9) #12
  br label %37

37:
  %38 = phi i64 [ %36, %35 ], [ 0, %13 ], [ 0, %5 ]
  call void @llvm.lifetime.start.p0(i64 192, ptr nonnull %10) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 64 dereferenceable(192) %10, i8 0, i64 192, i1 false)
  store ptr %0, ptr %10, align 64
  %39 = getelementptr inbounds i8, ptr %10, i64 8
  store ptr %1, ptr %39, align 8
  %40 = getelementptr inbounds i8, ptr %10, i64 16
  store ptr %2, ptr %40, align 16
  %41 = getelementptr inbounds i8, ptr %10, i64 24
  store ptr %3, ptr %41, align 8
  %42 = getelementptr inbounds i8, ptr %10, i64 32
  store i64 %4, ptr %42, align 32
  %43 = getelementptr inbounds i8, ptr %10, i64 80
  store i64 9223372036854775807, ptr %43, align 16
  br i1 %12, label %44, label %49

44:
  %45 = getelementptr inbounds i8, ptr %10, i64 40
  %46 = add i64 %4, 511
  %47 = sdiv i64 %46, 512
  %48 = getelementptr inbounds i8, ptr %10, i64 56
  store i64 %47, ptr %48, align 8
  br label %81

49:
  %50 = icmp eq i64 %38, 0
  br i1 %50, label %58, label %51

51:
  %52 = getelementptr inbounds i8, ptr %1, i64 64
  %53 = load atomic i64, ptr %52 acquire, align 8
  %54 = icmp eq i64 %38, %53
  br i1 %54, label %55, label %58

55:
  %56 = getelementptr inbounds i8, ptr %10, i64 40
  %57 = load i64, ptr %56, align 8
  br label %64

58:
  %59 = getelementptr inbounds i8, ptr %1, i64 48
  %60 = load i64, ptr %59, align 8
  %61 = add i64 %60, 3
  %62 = sdiv i64 %61, 4
  %63 = getelementptr inbounds i8, ptr %10, i64 40
  store i64 %62, ptr %63, align 8
  br label %64

64:
  %65 = phi i64 [ %57, %55 ], [ %62, %58 ]
  %66 = load i64, ptr %1, align 8
  %67 = add i64 %66, 15
  %68 = sdiv i64 %67, 16
  %69 = getelementptr inbounds i8, ptr %10, i64 48
  store i64 %68, ptr %69, align 16
  %70 = getelementptr inbounds i8, ptr %10, i64 40
  %71 = add i64 %4, 511
  %72 = sdiv i64 %71, 512
  %73 = add i64 %65, %72
  %74 = add i64 %73, %68
  %75 = getelementptr inbounds i8, ptr %10, i64 56
  store i64 %74, ptr %75, align 8
  %76 = icmp eq i64 %65, 0
  br i1 %76, label %77, label %88

77:
  %78 = load ptr, ptr %10, align 64
  %79 = load ptr, ptr %39, align 8
  %80 = load i64, ptr %42, align 32
  br label %81

81:
  %82 = phi i64 [ %4, %44 ], [ %80, %77 ]
  %83 = phi ptr [ null, %44 ], [ %79, %77 ]
  %84 = phi ptr [ %0, %44 ], [ %78, %77 ]
  %85 = phi ptr [ %48, %44 ], [ %75, %77 ]
  %86 = phi ptr [ %45, %44 ], [ %70, %77 ]
  %87 = mul i64 %82, 3
  br label %104

88:
  %89 = getelementptr inbounds i8, ptr %1, i64 40
  %90 = load ptr, ptr %89, align 8
  %91 = getelementptr inbounds i8, ptr %90, i64 8
  %92 = load atomic i64, ptr %91 acquire, align 8
  %93 = load i64, ptr %70, align 8
  %94 = load ptr, ptr %10, align 64
  %95 = load ptr, ptr %39, align 8
  %96 = load i64, ptr %42, align 32
  %97 = mul i64 %96, 3
  %98 = icmp eq i64 %93, 0
  br i1 %98, label %104, label %99

99:
  %100 = getelementptr inbounds i8, ptr %95, i64 48
  %101 = load i64, ptr %100, align 8
  %102 = mul i64 %101, 500
  %103 = add i64 %102, %97
  br label %112

104:
  %105 = phi i64 [ %87, %81 ], [ %97, %88 ]
  %106 = phi ptr [ %83, %81 ], [ %95, %88 ]
  %107 = phi ptr [ %84, %81 ], [ %94, %88 ]
  %108 = phi i64 [ 0, %81 ], [ %92, %88 ]
  %109 = phi ptr [ %86, %81 ], [ %70, %88 ]
  %110 = phi ptr [ %85, %81 ], [ %75, %88 ]
  %111 = icmp eq ptr %106, null
  br i1 %111, label %122, label %112

112:
  %113 = phi ptr [ %95, %99 ], [ %106, %104 ]
  %114 = phi ptr [ %94, %99 ], [ %107, %104 ]
  %115 = phi i64 [ %92, %99 ], [ %108, %104 ]
  %116 = phi ptr [ %70, %99 ], [ %109, %104 ]
  %117 = phi ptr [ %75, %99 ], [ %110, %104 ]
  %118 = phi i64 [ %103, %99 ], [ %105, %104 ]
  %119 = load i64, ptr %113, align 8
  %120 = mul i64 %119, 150
  %121 = add i64 %120, %118
  br label %122

122:
  %123 = phi ptr [ %114, %112 ], [ %107, %104 ]
  %124 = phi i64 [ %115, %112 ], [ %108, %104 ]
  %125 = phi ptr [ %116, %112 ], [ %109, %104 ]
  %126 = phi ptr [ %117, %112 ], [ %110, %104 ]
  %127 = phi i64 [ %121, %112 ], [ %105, %104 ]
  %128 = icmp sgt i64 %127, 31999
  br i1 %128, label %129, label %179

129:
  %130 = getelementptr inbounds i8, ptr %123, i64 136
  %131 = load ptr, ptr %130, align 8
  %132 = load atomic i64, ptr %131 monotonic, align 8
  %133 = call i32 @_ZN2at15get_num_threadsEv() #12
  %134 = sext i32 %133 to i64
  %135 = getelementptr inbounds i8, ptr %123, i64 40
  %136 = load i64, ptr %135, align 8
  %137 = call noundef i64 @llvm.smin.i64(i64 %134, i64 %136)
  %138 = getelementptr inbounds i8, ptr %123, i64 64
  %139 = load i64, ptr %138, align 8
  %140 = icmp ne i64 %139, 0
  %141 = icmp slt i64 %139, %137
  %142 = and i1 %140, %141
  br i1 %142, label %143, label %172

143:
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %8) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %8, i8 0, i64 16, i1 false)
  %144 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %8) #12
  %145 = load i64, ptr %8, align 8
  %146 = mul i64 %145, 1000000000
  %147 = getelementptr inbounds i8, ptr %8, i64 8
  %148 = load i64, ptr %147, align 8
  %149 = add i64 %146, %148
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %8) #12
  %150 = getelementptr inbounds i8, ptr %123, i64 72
  %151 = load i64, ptr %150, align 8
  %152 = icmp slt i64 %149, %151
  br i1 %152, label %153, label %155

153:
  %154 = load i64, ptr %138, align 8
  br label %172

155:
  %156 = call fastcc zeroext i1 @is_room(ptr noundef nonnull %123, i64 noundef %149)
  br i1 %156, label %164, label %157

157:
  %158 = getelementptr inbounds i8, ptr %123, i64 80
  %159 = load i64, ptr %158, align 8
  %160 = icmp slt i64 %149, %159
  br i1 %160, label %161, label %164

161:
  %162 = add i64 %149, 250000000
  store i64 %162, ptr %150, align 8
  %163 = load i64, ptr %138, align 8
  br label %172

164:
  %165 = load i64, ptr %138, align 8
  %166 = shl i64 %165, 1
  store i64 %166, ptr %138, align 8
  %167 = getelementptr inbounds i8, ptr %123, i64 88
  %168 = load i64, ptr %167, align 8
  %169 = add i64 %168, %149
  store i64 %169, ptr %150, align 8
  %170 = getelementptr inbounds i8, ptr %123, i64 120
  store i64 6000000, ptr %170, align 8
  %171 = call noundef i64 @llvm.smin.i64(i64 %137, i64 %166)
  br label %172

172:
  %173 = phi i64 [ %137, %129 ], [ %154, %153 ], [ %171, %164 ], [ %163, %161 ]
  %174 = add i64 %132, 1
  %175 = icmp sgt i64 %174, 1
  br i1 %175, label %176, label %179

176:
  %177 = sdiv i64 %173, %174
  %178 = call noundef i64 @llvm.smax.i64(i64 %177, i64 1)
  br label %179

179:
  %180 = phi i64 [ 1, %122 ], [ %178, %176 ], [ %173, %172 ]
  %181 = shl i64 %127, 1
  %182 = sdiv i64 %181, 32000
  %183 = call noundef i64 @llvm.smin.i64(i64 %180, i64 %182)
  %184 = icmp slt i64 %183, 2
  br i1 %184, label %185, label %193

185:
  %186 = load i64, ptr %126, align 8
  %187 = icmp eq i64 %186, 0
  br i1 %187, label %211, label %188

188:
  %189 = phi i64 [ %190, %188 ], [ 0, %185 ]
  call fastcc void @run_check(ptr noundef nonnull %10, i64 noundef %189)
  %190 = add nuw i64 %189, 1
  %191 = load i64, ptr %126, align 8
  %192 = icmp ult i64 %190, %191
  br i1 %192, label %188, label %211

193:
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %7) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %7, i8 0, i64 16, i1 false)
  %194 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %7) #12
  %195 = load i64, ptr %7, align 8
  %196 = mul i64 %195, 1000000000
  %197 = getelementptr inbounds i8, ptr %7, i64 8
  %198 = load i64, ptr %197, align 8
  %199 = add i64 %196, %198
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %7) #12
  %200 = trunc i64 %183 to i32
  call void @GOMP_parallel(ptr noundef nonnull @run_checks, ptr noundef nonnull %10, i32 noundef %200, i32 noundef 0) #12
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %6) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %6, i8 0, i64 16, i1 false)
  %201 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %6) #12
  %202 = load i64, ptr %6, align 8
  %203 = mul i64 %202, 1000000000
  %204 = getelementptr inbounds i8, ptr %6, i64 8
  %205 = load i64, ptr %204, align 8
  %206 = add i64 %203, %205
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %6) #12
  %207 = getelementptr inbounds i8, ptr %10, i64 88
  %208 = load i64, ptr %207, align 8
  %209 = sub i64 %206, %208
  %210 = mul i64 %209, %183
  call fastcc void @judge(ptr noundef %123, i64 noundef %180, i64 noundef %183, i64 noundef %199, i64 noundef %206, i64 noundef %210)
  br label %211

211:
  %212 = getelementptr inbounds i8, ptr %10, i64 72
  %213 = load i64, ptr %212, align 8
  %214 = icmp ne i64 %213, 0
  %215 = or i1 %12, %214
  %216 = zext i1 %214 to i64
  br i1 %215, label %263, label %217

217:
  %218 = getelementptr inbounds i8, ptr %10, i64 64
  %219 = load i64, ptr %218, align 64
  %220 = icmp eq i64 %219, 0
  br i1 %220, label %221, label %261

221:
  %222 = load i64, ptr %125, align 8
  %223 = icmp eq i64 %222, 0
  br i1 %223, label %238, label %224

224:
  %225 = and i64 %124, 1
  %226 = icmp eq i64 %225, 0
  br i1 %226, label %227, label %261

227:
  %228 = getelementptr inbounds i8, ptr %1, i64 40
  %229 = load ptr, ptr %228, align 8
  %230 = getelementptr inbounds i8, ptr %229, i64 8
  %231 = load atomic i64, ptr %230 acquire, align 8
  %232 = icmp eq i64 %231, %124
  br i1 %232, label %233, label %261

233:
  %234 = load i64, ptr %125, align 8
  %235 = icmp eq i64 %234, 0
  br i1 %235, label %238, label %236

236:
  %237 = getelementptr inbounds i8, ptr %1, i64 64
  store atomic i64 %38, ptr %237 release, align 8
  br label %238

238:
  %239 = load i64, ptr %43, align 16
  %240 = icmp eq i64 %239, 9223372036854775807
  br i1 %240, label %243, label %241

241:
  %242 = xor i64 %239, -1
  br label %263

243:
  %244 = getelementptr inbounds i8, ptr %1, i64 24
  %245 = load ptr, ptr %244, align 8
  %246 = getelementptr inbounds i8, ptr %1, i64 16
  %247 = load i64, ptr %246, align 8
  %248 = icmp sgt i64 %247, 0
  br i1 %248, label %249, label %262

249:
  %250 = getelementptr i8, ptr %0, i64 160
  br label %251

251:
  %252 = phi i64 [ 0, %249 ], [ %258, %251 ]
  %253 = getelementptr %struct.PackedRecord, ptr %245, i64 %252
  %254 = getelementptr inbounds i8, ptr %253, i64 8
  %255 = load ptr, ptr %254, align 8
  %256 = load i64, ptr %253, align 8
  %257 = getelementptr ptr, ptr %250, i64 %256
  store ptr %255, ptr %257, align 8
  %258 = add nuw nsw i64 %252, 1
  %259 = load i64, ptr %246, align 8
  %260 = icmp slt i64 %258, %259
  br i1 %260, label %251, label %262

261:
  call void @llvm.lifetime.end.p0(i64 192, ptr nonnull %10) #12
  br label %268

262:
  call void @llvm.lifetime.end.p0(i64 192, ptr nonnull %10) #12
  br label %272

263:
  %264 = phi i64 [ %242, %241 ], [ %216, %211 ]
  call void @llvm.lifetime.end.p0(i64 192, ptr nonnull %10) #12
  %265 = icmp eq i64 %264, 0
  br i1 %265, label %272, label %266

266:
  %267 = icmp slt i64 %264, 0
  br i1 %267, label %268, label %302

268:
  %269 = phi i64 [ -1, %261 ], [ %264, %266 ]
  %270 = load i64, ptr %11, align 8
  %271 = sub i64 %269, %270
  br label %302

272:
  %273 = getelementptr inbounds i8, ptr %11, i64 40
  %274 = load ptr, ptr %273, align 8
  %275 = getelementptr inbounds i8, ptr %0, i64 8
  %276 = load ptr, ptr %275, align 8
  %277 = getelementptr inbounds i8, ptr %11, i64 32
  %278 = load i64, ptr %277, align 8
  %279 = icmp sgt i64 %278, 0
  br i1 %279, label %280, label %283

280:
  %281 = getelementptr inbounds i8, ptr %0, i64 16
  %282 = getelementptr i8, ptr %0, i64 160
  br label %288

283:
  %284 = getelementptr inbounds i8, ptr %0, i64 48
  %285 = load i64, ptr %284, align 8
  %286 = add i64 %285, 1
  store i64 %286, ptr %284, align 8
  %287 = getelementptr inbounds i8, ptr %0, i64 56
  store i64 0, ptr %287, align 8
  br label %302

288:
  %289 = phi i64 [ 0, %280 ], [ %299, %288 ]
  %290 = load ptr, ptr %281, align 8
  %291 = getelementptr %struct.ArenaRecord, ptr %274, i64 %289
  %292 = getelementptr inbounds i8, ptr %291, i64 8
  %293 = load i64, ptr %292, align 8
  %294 = getelementptr i64, ptr %276, i64 %293
  %295 = load i64, ptr %294, align 8
  %296 = getelementptr i8, ptr %290, i64 %295
  %297 = load i64, ptr %291, align 8
  %298 = getelementptr ptr, ptr %282, i64 %297
  store ptr %296, ptr %298, align 8
  %299 = add nuw nsw i64 %289, 1
  %300 = load i64, ptr %277, align 8
  %301 = icmp slt i64 %299, %300
  br i1 %301, label %288, label %283

302:
  %303 = phi i64 [ 0, %283 ], [ %271, %268 ], [ %264, %266 ]
  ret i64 %303
}

; Function Attrs: nounwind
declare i32 @getrusage(i32 noundef, ptr noundef) local_unnamed_addr #6

declare i32 @_ZN2at15get_num_threadsEv() local_unnamed_addr #1

; Function Attrs: nounwind uwtable(sync)
define internal fastcc void @run_check(ptr nocapture noundef %0, i64 noundef %1) unnamed_addr #0 {
  %3 = alloca <16 x i64>, align 128
  %4 = alloca i64, align 8
  %5 = alloca ptr, align 8
  %6 = alloca ptr, align 8
  %7 = alloca i32, align 4
  %8 = alloca ptr, align 8
  %9 = alloca %struct.page_region, align 8
  %10 = alloca %struct.pm_scan_arg, align 8
  %11 = getelementptr inbounds i8, ptr %0, i64 8
  %12 = load ptr, ptr %11, align 8
  %13 = getelementptr inbounds i8, ptr %0, i64 40
  %14 = load i64, ptr %13, align 8
  %15 = icmp ugt i64 %14, %1
  br i1 %15, label %16, label %60

16:
  %17 = shl i64 %1, 2
  %18 = add i64 %17, 4
  %19 = getelementptr inbounds i8, ptr %12, i64 48
  %20 = load i64, ptr %19, align 8
  %21 = tail call noundef i64 @llvm.smin.i64(i64 %18, i64 %20)
  %22 = getelementptr inbounds i8, ptr %12, i64 40
  %23 = load ptr, ptr %22, align 8
  %24 = getelementptr inbounds i8, ptr %12, i64 56
  %25 = load ptr, ptr %24, align 8
  call void @llvm.lifetime.start.p0(i64 24, ptr nonnull %9) #12
  %26 = icmp slt i64 %17, %21
  br i1 %26, label %28, label %27

27:
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %9) #12
  br label %362

28:
  %29 = getelementptr inbounds i8, ptr %10, i64 8
  %30 = getelementptr inbounds i8, ptr %10, i64 16
  %31 = getelementptr inbounds i8, ptr %10, i64 24
  %32 = getelementptr inbounds i8, ptr %10, i64 32
  %33 = getelementptr inbounds i8, ptr %10, i64 40
  %34 = ptrtoint ptr %9 to i64
  %35 = getelementptr inbounds i8, ptr %10, i64 48
  %36 = getelementptr inbounds i8, ptr %10, i64 56
  %37 = getelementptr inbounds i8, ptr %10, i64 64
  %38 = getelementptr inbounds i8, ptr %10, i64 72
  %39 = getelementptr inbounds i8, ptr %10, i64 80
  %40 = getelementptr inbounds i8, ptr %10, i64 88
  br label %45

41:
  %42 = add i64 %47, 1
  %43 = icmp sge i64 %42, %21
  %44 = icmp eq i64 %42, %21
  br i1 %44, label %56, label %45

45:
  %46 = phi i1 [ false, %28 ], [ %43, %41 ]
  %47 = phi i64 [ %17, %28 ], [ %42, %41 ]
  call void @llvm.lifetime.start.p0(i64 96, ptr nonnull %10) #12
  store i64 96, ptr %10, align 8
  store i64 2, ptr %29, align 8
  %48 = getelementptr %struct.PagesRecord, ptr %25, i64 %47
  %49 = load i64, ptr %48, align 8
  store i64 %49, ptr %30, align 8
  %50 = getelementptr inbounds i8, ptr %48, i64 8
  %51 = load i64, ptr %50, align 8
  store i64 %51, ptr %31, align 8
  store i64 0, ptr %32, align 8
  store i64 %34, ptr %33, align 8
  store i64 1, ptr %35, align 8
  store i64 1, ptr %36, align 8
  store i64 0, ptr %37, align 8
  store i64 2, ptr %38, align 8
  store i64 0, ptr %39, align 8
  store i64 2, ptr %40, align 8
  %52 = load i64, ptr %23, align 8
  %53 = trunc i64 %52 to i32
  %54 = call i32 (i32, i64, ...) @ioctl(i32 noundef %53, i64 noundef 3227543056, ptr noundef nonnull %10) #12
  %55 = icmp eq i32 %54, 0
  call void @llvm.lifetime.end.p0(i64 96, ptr nonnull %10) #12
  br i1 %55, label %41, label %56

56:
  %57 = phi i1 [ %43, %41 ], [ %46, %45 ]
  call void @llvm.lifetime.end.p0(i64 24, ptr nonnull %9) #12
  br i1 %57, label %362, label %58

58:
  %59 = getelementptr inbounds i8, ptr %0, i64 64
  store atomic i64 1, ptr %59 monotonic, align 64
  br label %362

60:
  %61 = sub i64 %1, %14
  %62 = getelementptr inbounds i8, ptr %0, i64 48
  %63 = load i64, ptr %62, align 16
  %64 = icmp ult i64 %61, %63
  br i1 %64, label %65, label %349

65:
  %66 = shl i64 %61, 4
  %67 = add i64 %66, 16
  %68 = load i64, ptr %12, align 8
  %69 = tail call noundef i64 @llvm.smin.i64(i64 %67, i64 %68)
  %70 = getelementptr inbounds i8, ptr %12, i64 8
  %71 = load ptr, ptr %70, align 8
  %72 = load ptr, ptr %0, align 64
  %73 = getelementptr i8, ptr %72, i64 160
  %74 = icmp slt i64 %66, %69
  br i1 %74, label %75, label %362

75:
  %76 = getelementptr inbounds i8, ptr %0, i64 16
  %77 = getelementptr inbounds i8, ptr %12, i64 32
  br label %78

78:
  %79 = phi i64 [ %66, %75 ], [ %337, %331 ]
  %80 = add i64 %79, 6
  %81 = load i64, ptr %12, align 8
  %82 = add i64 %81, -1
  %83 = call noundef i64 @llvm.smin.i64(i64 %80, i64 %82)
  %84 = getelementptr %struct.ParameterRecord, ptr %71, i64 %83
  %85 = load ptr, ptr %84, align 8
  call void @llvm.prefetch.p0(ptr readonly %85, i32 0, i32 3, i32 1)
  %86 = getelementptr inbounds i8, ptr %84, i64 24
  %87 = load ptr, ptr %86, align 8
  br label %96

88:
  %89 = getelementptr inbounds i8, ptr %84, i64 88
  %90 = load ptr, ptr %89, align 8
  call void @llvm.prefetch.p0(ptr readonly %90, i32 0, i32 3, i32 1)
  %91 = getelementptr inbounds i8, ptr %84, i64 152
  %92 = load ptr, ptr %91, align 8
  call void @llvm.prefetch.p0(ptr readonly %92, i32 0, i32 3, i32 1)
  %93 = getelementptr inbounds i8, ptr %84, i64 160
  %94 = load ptr, ptr %93, align 8
  %95 = icmp eq ptr %94, null
  br i1 %95, label %103, label %102

96:
  %97 = phi i64 [ 0, %78 ], [ %100, %96 ]
  %98 = shl nuw nsw i64 %97, 6
  %99 = getelementptr i8, ptr %87, i64 %98
  call void @llvm.prefetch.p0(ptr readonly %99, i32 0, i32 3, i32 1)
  %100 = add nuw nsw i64 %97, 1
  %101 = icmp eq i64 %100, 4
  br i1 %101, label %88, label %96

102:
  call void @llvm.prefetch.p0(ptr nonnull readonly %94, i32 0, i32 3, i32 1)
  br label %103

103:
  %104 = add i64 %79, 3
  %105 = call noundef i64 @llvm.smin.i64(i64 %104, i64 %82)
  %106 = getelementptr %struct.ParameterRecord, ptr %71, i64 %105
  %107 = getelementptr inbounds i8, ptr %106, i64 112
  %108 = load i64, ptr %107, align 8
  %109 = icmp sgt i64 %108, 0
  br i1 %109, label %110, label %115

110:
  %111 = getelementptr inbounds i8, ptr %106, i64 32
  %112 = load ptr, ptr %111, align 8
  %113 = getelementptr inbounds i8, ptr %106, i64 128
  %114 = load i64, ptr %113, align 8
  br label %121

115:
  %116 = getelementptr inbounds i8, ptr %106, i64 152
  %117 = load ptr, ptr %116, align 8
  %118 = getelementptr inbounds i8, ptr %106, i64 144
  %119 = load i64, ptr %118, align 8
  %120 = icmp sgt i64 %119, 0
  br i1 %120, label %127, label %135

121:
  %122 = phi i64 [ 0, %110 ], [ %125, %121 ]
  %123 = mul i64 %122, %114
  %124 = getelementptr i8, ptr %112, i64 %123
  call void @llvm.prefetch.p0(ptr readonly %124, i32 0, i32 3, i32 1)
  %125 = add nuw nsw i64 %122, 1
  %126 = icmp eq i64 %125, %108
  br i1 %126, label %115, label %121

127:
  %128 = phi i64 [ %133, %127 ], [ 0, %115 ]
  %129 = getelementptr %struct.EdgeRecord, ptr %117, i64 %128
  %130 = load ptr, ptr %129, align 8
  call void @llvm.prefetch.p0(ptr readonly %130, i32 0, i32 3, i32 1)
  %131 = getelementptr inbounds i8, ptr %129, i64 16
  %132 = load ptr, ptr %131, align 8
  call void @llvm.prefetch.p0(ptr readonly %132, i32 0, i32 3, i32 1)
  %133 = add nuw nsw i64 %128, 1
  %134 = icmp eq i64 %133, %119
  br i1 %134, label %135, label %127

135:
  %136 = getelementptr %struct.ParameterRecord, ptr %71, i64 %79
  %137 = load ptr, ptr %76, align 16
  %138 = load i64, ptr %77, align 8
  %139 = getelementptr inbounds i8, ptr %136, i64 16
  %140 = load i64, ptr %139, align 8
  %141 = call ptr @PyTuple_GetItem(ptr noundef %137, i64 noundef %140) #12
  %142 = load ptr, ptr %136, align 8
  %143 = icmp eq ptr %141, %142
  br i1 %143, label %144, label %164

144:
  %145 = icmp eq i64 %138, 0
  br i1 %145, label %146, label %152

146:
  %147 = getelementptr inbounds i8, ptr %136, i64 24
  %148 = getelementptr inbounds i8, ptr %136, i64 88
  %149 = load ptr, ptr %148, align 8
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %4) #12
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %5) #12
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %6) #12
  %150 = getelementptr inbounds i8, ptr %136, i64 72
  %151 = load i64, ptr %150, align 8
  call void @llvm.lifetime.start.p0(i64 4, ptr nonnull %7) #12
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %8) #12
  br label %170

152:
  %153 = getelementptr inbounds i8, ptr %141, i64 8
  %154 = load ptr, ptr %153, align 8
  %155 = getelementptr inbounds i8, ptr %136, i64 8
  %156 = load ptr, ptr %155, align 8
  %157 = icmp eq ptr %154, %156
  br i1 %157, label %158, label %164

158:
  %159 = getelementptr i8, ptr %141, i64 %138
  %160 = load ptr, ptr %159, align 8
  %161 = getelementptr inbounds i8, ptr %136, i64 24
  %162 = load ptr, ptr %161, align 8
  %163 = icmp eq ptr %160, %162
  br i1 %163, label %165, label %164

164:
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %4) #12
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %5) #12
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %6) #12
  call void @llvm.lifetime.start.p0(i64 4, ptr nonnull %7) #12
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %8) #12
  br label %238

165:
  %166 = getelementptr inbounds i8, ptr %136, i64 88
  %167 = load ptr, ptr %166, align 8
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %4) #12
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %5) #12
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %6) #12
  %168 = getelementptr inbounds i8, ptr %136, i64 72
  %169 = load i64, ptr %168, align 8
  call void @llvm.lifetime.start.p0(i64 4, ptr nonnull %7) #12
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %8) #12
  br label %170

170:
  %171 = phi i64 [ %151, %146 ], [ %169, %165 ]
  %172 = phi ptr [ %150, %146 ], [ %168, %165 ]
  %173 = phi ptr [ %149, %146 ], [ %167, %165 ]
  %174 = phi ptr [ %147, %146 ], [ %159, %165 ]
  %175 = shl i64 %171, 3
  %176 = call i32 @aoti_torch_get_data_ptr(ptr noundef nonnull %174, ptr noundef nonnull %8) #12
  %177 = icmp eq i32 %176, 0
  br i1 %177, label %178, label %238

178:
  %179 = load ptr, ptr %8, align 8
  %180 = getelementptr inbounds i8, ptr %136, i64 32
  %181 = load ptr, ptr %180, align 8
  %182 = icmp eq ptr %179, %181
  br i1 %182, label %183, label %238

183:
  %184 = call i32 @aoti_torch_get_dim(ptr noundef nonnull %174, ptr noundef nonnull %4) #12
  %185 = icmp eq i32 %184, 0
  br i1 %185, label %186, label %238

186:
  %187 = load i64, ptr %4, align 8
  %188 = load i64, ptr %172, align 8
  %189 = icmp eq i64 %187, %188
  br i1 %189, label %190, label %238

190:
  %191 = call i32 @aoti_torch_get_dtype(ptr noundef nonnull %174, ptr noundef nonnull %7) #12
  %192 = icmp eq i32 %191, 0
  br i1 %192, label %193, label %238

193:
  %194 = load i32, ptr %7, align 4
  %195 = sext i32 %194 to i64
  %196 = getelementptr inbounds i8, ptr %136, i64 80
  %197 = load i64, ptr %196, align 8
  %198 = icmp eq i64 %197, %195
  br i1 %198, label %199, label %238

199:
  %200 = call i32 @aoti_torch_get_sizes(ptr noundef nonnull %174, ptr noundef nonnull %5) #12
  %201 = icmp eq i32 %200, 0
  br i1 %201, label %202, label %238

202:
  %203 = call i32 @aoti_torch_get_strides(ptr noundef nonnull %174, ptr noundef nonnull %6) #12
  %204 = icmp eq i32 %203, 0
  br i1 %204, label %205, label %238

205:
  %206 = load ptr, ptr %5, align 8
  %207 = call i32 @bcmp(ptr %206, ptr %173, i64 %175)
  %208 = icmp eq i32 %207, 0
  br i1 %208, label %209, label %238

209:
  %210 = load ptr, ptr %6, align 8
  %211 = load i64, ptr %4, align 8
  %212 = getelementptr i64, ptr %173, i64 %211
  %213 = call i32 @bcmp(ptr %210, ptr %212, i64 %175)
  %214 = icmp eq i32 %213, 0
  br i1 %214, label %215, label %238

215:
  %216 = call i32 @_ZN2at6native12is_inferenceERKNS_6TensorE(ptr noundef nonnull %174) #12
  %217 = and i32 %216, 255
  %218 = zext nneg i32 %217 to i64
  %219 = getelementptr inbounds i8, ptr %136, i64 56
  %220 = load i64, ptr %219, align 8
  %221 = icmp eq i64 %220, %218
  br i1 %221, label %222, label %238

222:
  %223 = call i32 @_ZN2at6native6is_negERKNS_6TensorE(ptr noundef nonnull %174) #12
  %224 = and i32 %223, 255
  %225 = zext nneg i32 %224 to i64
  %226 = getelementptr inbounds i8, ptr %136, i64 64
  %227 = load i64, ptr %226, align 8
  %228 = icmp eq i64 %227, %225
  br i1 %228, label %229, label %238

229:
  %230 = getelementptr inbounds i8, ptr %136, i64 48
  %231 = load i64, ptr %230, align 8
  %232 = icmp eq i64 %231, 0
  br i1 %232, label %239, label %233

233:
  %234 = call i64 @_ZNK2at10TensorBase8_versionEv(ptr noundef nonnull %174) #12
  %235 = getelementptr inbounds i8, ptr %136, i64 40
  %236 = load i64, ptr %235, align 8
  %237 = icmp eq i64 %234, %236
  br i1 %237, label %239, label %238

238:
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %8) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %7) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %6) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %5) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %4) #12
  br label %339

239:
  %240 = load ptr, ptr %180, align 8
  %241 = getelementptr inbounds i8, ptr %136, i64 136
  %242 = load ptr, ptr %241, align 8
  %243 = getelementptr inbounds i8, ptr %136, i64 152
  %244 = load ptr, ptr %243, align 8
  %245 = getelementptr inbounds i8, ptr %136, i64 144
  %246 = load i64, ptr %245, align 8
  %247 = icmp sgt i64 %246, 0
  br i1 %247, label %260, label %251

248:
  %249 = add nuw nsw i64 %261, 1
  %250 = icmp eq i64 %249, %246
  br i1 %250, label %251, label %260

251:
  %252 = getelementptr inbounds i8, ptr %136, i64 112
  %253 = load i64, ptr %252, align 8
  %254 = icmp sgt i64 %253, 0
  br i1 %254, label %255, label %281

255:
  %256 = getelementptr inbounds i8, ptr %136, i64 128
  %257 = load i64, ptr %256, align 8
  %258 = getelementptr inbounds i8, ptr %136, i64 120
  %259 = load i64, ptr %258, align 8
  br label %273

260:
  %261 = phi i64 [ %249, %248 ], [ 0, %239 ]
  %262 = getelementptr %struct.EdgeRecord, ptr %244, i64 %261
  %263 = load ptr, ptr %262, align 8
  %264 = getelementptr inbounds i8, ptr %262, i64 16
  %265 = load ptr, ptr %264, align 8
  %266 = getelementptr inbounds i8, ptr %262, i64 8
  %267 = load i64, ptr %266, align 8
  %268 = call i32 @bcmp(ptr %263, ptr %265, i64 %267)
  %269 = icmp eq i32 %268, 0
  br i1 %269, label %248, label %326

270:
  %271 = add nuw nsw i64 %274, 1
  %272 = icmp eq i64 %271, %253
  br i1 %272, label %281, label %273

273:
  %274 = phi i64 [ 0, %255 ], [ %271, %270 ]
  %275 = mul i64 %274, %257
  %276 = getelementptr i8, ptr %240, i64 %275
  %277 = mul i64 %274, %259
  %278 = getelementptr i8, ptr %242, i64 %277
  %279 = call i32 @bcmp(ptr %276, ptr %278, i64 %259)
  %280 = icmp eq i32 %279, 0
  br i1 %280, label %270, label %326

281:
  %282 = getelementptr inbounds i8, ptr %136, i64 160
  %283 = load ptr, ptr %282, align 8
  %284 = icmp eq ptr %283, null
  br i1 %284, label %290, label %285

285:
  %286 = load atomic i64, ptr %283 acquire, align 8
  %287 = getelementptr inbounds i8, ptr %136, i64 168
  %288 = load i64, ptr %287, align 8
  %289 = icmp eq i64 %286, %288
  br i1 %289, label %290, label %326

290:
  %291 = getelementptr inbounds i8, ptr %136, i64 176
  %292 = load i64, ptr %291, align 8
  %293 = icmp eq i64 %292, 0
  br i1 %293, label %294, label %295

294:
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %8) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %7) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %6) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %5) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %4) #12
  br label %331

295:
  %296 = lshr i64 %292, 7
  call void @llvm.lifetime.start.p0(i64 128, ptr nonnull %3)
  store <16 x i64> zeroinitializer, ptr %3, align 128
  %297 = and i64 %292, -128
  %298 = getelementptr i8, ptr %240, i64 %297
  %299 = and i64 %292, 127
  call void @llvm.memcpy.p0.p0.i64(ptr nonnull align 128 %3, ptr readonly align 1 %298, i64 %299, i1 false)
  br label %300

300:
  %301 = phi i64 [ 0, %295 ], [ %313, %300 ]
  %302 = phi <16 x i64> [ <i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15, i64 16>, %295 ], [ %312, %300 ]
  %303 = icmp ult i64 %301, %296
  %304 = shl nuw i64 %301, 7
  %305 = getelementptr i8, ptr %240, i64 %304
  %306 = select i1 %303, ptr %305, ptr %3
  %307 = load <16 x i64>, ptr %306, align 1
  %308 = xor <16 x i64> %307, %302
  %309 = mul <16 x i64> %308, <i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825, i64 -7046029288634856825>
  %310 = mul <16 x i64> %308, <i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872, i64 3512096672681295872>
  %311 = lshr <16 x i64> %309, <i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35, i64 35>
  %312 = or disjoint <16 x i64> %311, %310
  %313 = add nuw nsw i64 %301, 1
  %314 = icmp eq i64 %301, %296
  br i1 %314, label %315, label %300

315:
  %316 = phi i32 [ %324, %315 ], [ 0, %300 ]
  %317 = phi i64 [ %323, %315 ], [ %292, %300 ]
  %318 = extractelement <16 x i64> %312, i32 %316
  %319 = xor i64 %318, %317
  %320 = mul i64 %319, -7046029288634856825
  %321 = mul i64 %319, -4398357382984368128
  %322 = lshr i64 %320, 33
  %323 = or disjoint i64 %322, %321
  %324 = add nuw nsw i32 %316, 1
  %325 = icmp eq i32 %324, 16
  br i1 %325, label %327, label %315

326:
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %8) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %7) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %6) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %5) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %4) #12
  br label %339

327:
  call void @llvm.lifetime.end.p0(i64 128, ptr nonnull %3)
  %328 = getelementptr inbounds i8, ptr %136, i64 184
  %329 = load i64, ptr %328, align 8
  %330 = icmp eq i64 %323, %329
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %8) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %7) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %6) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %5) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %4) #12
  br i1 %330, label %331, label %339

331:
  %332 = getelementptr inbounds i8, ptr %136, i64 104
  %333 = load ptr, ptr %332, align 8
  %334 = getelementptr inbounds i8, ptr %136, i64 96
  %335 = load i64, ptr %334, align 8
  %336 = getelementptr ptr, ptr %73, i64 %335
  store ptr %333, ptr %336, align 8
  %337 = add nsw i64 %79, 1
  %338 = icmp eq i64 %337, %69
  br i1 %338, label %362, label %78

339:
  %340 = getelementptr inbounds i8, ptr %0, i64 80
  %341 = load atomic i64, ptr %340 monotonic, align 16
  br label %342

342:
  %343 = phi i64 [ %341, %339 ], [ %348, %345 ]
  %344 = icmp slt i64 %79, %343
  br i1 %344, label %345, label %362

345:
  %346 = cmpxchg ptr %340, i64 %343, i64 %79 monotonic monotonic, align 16
  %347 = extractvalue { i64, i1 } %346, 1
  %348 = extractvalue { i64, i1 } %346, 0
  br i1 %347, label %362, label %342

349:
  %350 = sub i64 %61, %63
  %351 = shl i64 %350, 9
  %352 = getelementptr inbounds i8, ptr %0, i64 24
  %353 = load ptr, ptr %352, align 8
  %354 = getelementptr %struct.WatchRecord, ptr %353, i64 %351
  %355 = getelementptr inbounds i8, ptr %0, i64 32
  %356 = load i64, ptr %355, align 32
  %357 = sub i64 %356, %351
  %358 = tail call noundef i64 @llvm.smin.i64(i64 %357, i64 512)
  %359 = tail call fastcc zeroext i1 @guards_hold(ptr noundef %354, i64 noundef %358)
  br i1 %359, label %362, label %360

360:
  %361 = getelementptr inbounds i8, ptr %0, i64 72
  store atomic i64 1, ptr %361 monotonic, align 8
  br label %362

362:
  ret void
}

declare void @GOMP_parallel(ptr noundef, ptr noundef, i32 noundef, i32 noundef) local_unnamed_addr #1

; Function Attrs: nounwind uwtable(sync)
define internal void @run_checks(ptr nocapture noundef %0) #0 {
  %2 = alloca %struct.Time, align 8
  %3 = getelementptr inbounds i8, ptr %0, i64 128
  %4 = getelementptr inbounds i8, ptr %0, i64 56
  %5 = atomicrmw add ptr %3, i64 1 monotonic, align 64
  %6 = load i64, ptr %4, align 8
  %7 = icmp ult i64 %5, %6
  br i1 %7, label %8, label %13

8:
  %9 = phi i64 [ %10, %8 ], [ %5, %1 ]
  tail call fastcc void @run_check(ptr noundef nonnull %0, i64 noundef %9)
  %10 = atomicrmw add ptr %3, i64 1 monotonic, align 64
  %11 = load i64, ptr %4, align 8
  %12 = icmp ult i64 %10, %11
  br i1 %12, label %8, label %13

13:
  %14 = tail call i32 @omp_get_thread_num() #12
  %15 = icmp eq i32 %14, 0
  br i1 %15, label %16, label %24

16:
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %2) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %2, i8 0, i64 16, i1 false)
  %17 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %2) #12
  %18 = load i64, ptr %2, align 8
  %19 = mul i64 %18, 1000000000
  %20 = getelementptr inbounds i8, ptr %2, i64 8
  %21 = load i64, ptr %20, align 8
  %22 = add i64 %19, %21
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %2) #12
  %23 = getelementptr inbounds i8, ptr %0, i64 88
  store i64 %22, ptr %23, align 8
  br label %24

24:
  ret void
}

; Function Attrs: nounwind uwtable(sync)
define internal fastcc void @judge(ptr nocapture noundef %0, i64 noundef %1, i64 noundef %2, i64 noundef %3, i64 noundef %4, i64 noundef %5) unnamed_addr #0 {
  %7 = alloca %struct.Time, align 8
  %8 = getelementptr inbounds i8, ptr %0, i64 96
  %9 = load i64, ptr %8, align 8
  %10 = sub i64 %4, %9
  %11 = icmp slt i64 %10, 50000000
  br i1 %11, label %55, label %12

12:
  %13 = sub i64 %3, %4
  %14 = getelementptr inbounds i8, ptr %0, i64 120
  %15 = load i64, ptr %14, align 8
  %16 = mul i64 %2, 500000
  %17 = icmp sgt i64 %16, %5
  %18 = select i1 %17, i64 0, i64 %5
  %19 = add i64 %13, %18
  %20 = add i64 %19, %15
  store i64 %20, ptr %14, align 8
  %21 = icmp sgt i64 %20, 12000000
  br i1 %21, label %22, label %51

22:
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %7) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %7, i8 0, i64 16, i1 false)
  %23 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %7) #12
  %24 = load i64, ptr %7, align 8
  %25 = mul i64 %24, 1000000000
  %26 = getelementptr inbounds i8, ptr %7, i64 8
  %27 = load i64, ptr %26, align 8
  %28 = add i64 %25, %27
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %7) #12
  %29 = getelementptr inbounds i8, ptr %0, i64 72
  %30 = load i64, ptr %29, align 8
  %31 = icmp slt i64 %28, %30
  br i1 %31, label %32, label %37

32:
  %33 = getelementptr inbounds i8, ptr %0, i64 88
  %34 = load i64, ptr %33, align 8
  %35 = shl i64 %34, 1
  %36 = call noundef i64 @llvm.smin.i64(i64 %35, i64 4000000000)
  br label %37

37:
  %38 = phi i64 [ %36, %32 ], [ 250000000, %22 ]
  %39 = getelementptr inbounds i8, ptr %0, i64 88
  store i64 %38, ptr %39, align 8
  %40 = add i64 %38, %28
  store i64 %40, ptr %29, align 8
  %41 = mul i64 %38, 20
  %42 = add i64 %41, %28
  %43 = getelementptr inbounds i8, ptr %0, i64 80
  store i64 %42, ptr %43, align 8
  %44 = add i64 %1, -1
  %45 = getelementptr inbounds i8, ptr %0, i64 64
  store i64 %44, ptr %45, align 8
  store i64 0, ptr %14, align 8
  %46 = getelementptr inbounds i8, ptr %0, i64 128
  %47 = load i64, ptr %46, align 8
  %48 = add i64 %47, 1
  store i64 %48, ptr %46, align 8
  %49 = call fastcc zeroext i1 @is_room(ptr noundef nonnull %0, i64 noundef %28)
  %50 = load i64, ptr %14, align 8
  br label %51

51:
  %52 = phi i64 [ %50, %37 ], [ %20, %12 ]
  %53 = icmp slt i64 %52, 0
  br i1 %53, label %54, label %55

54:
  store i64 0, ptr %14, align 8
  br label %55

55:
  ret void
}

; Function Attrs: nounwind uwtable(sync)
define internal fastcc zeroext i1 @is_room(ptr nocapture noundef %0, i64 noundef %1) unnamed_addr #0 {
  %3 = alloca %struct.Time, align 8
  %4 = alloca [256 x i8], align 16
  %5 = alloca [5 x i64], align 16
  call void @llvm.lifetime.start.p0(i64 256, ptr nonnull %4) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 16 dereferenceable(256) %4, i8 0, i64 256, i1 false)
  %6 = tail call i32 (ptr, i32, ...) @open(ptr noundef nonnull @.str, i32 noundef 524288) #12
  %7 = icmp slt i32 %6, 0
  br i1 %7, label %61, label %8

8:
  %9 = call i64 @read(i32 noundef %6, ptr noundef nonnull %4, i64 noundef 255) #12
  %10 = icmp slt i64 %9, 1
  %11 = tail call i32 @close(i32 noundef %6) #12
  call void @llvm.lifetime.start.p0(i64 40, ptr nonnull %5) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 16 dereferenceable(40) %5, i8 0, i64 40, i1 false)
  %12 = load i8, ptr %4, align 16
  %13 = icmp eq i8 %12, 0
  %14 = select i1 %10, i1 true, i1 %13
  br i1 %14, label %59, label %15

15:
  %16 = phi i8 [ %43, %39 ], [ %12, %8 ]
  %17 = phi i64 [ %40, %39 ], [ 0, %8 ]
  %18 = phi ptr [ %42, %39 ], [ %4, %8 ]
  %19 = add i8 %16, -58
  %20 = icmp ult i8 %19, -10
  br i1 %20, label %39, label %21

21:
  %22 = getelementptr [5 x i64], ptr %5, i64 0, i64 %17
  %23 = load i64, ptr %22, align 8
  br label %24

24:
  %25 = phi i64 [ %23, %21 ], [ %31, %24 ]
  %26 = phi i8 [ %16, %21 ], [ %33, %24 ]
  %27 = phi ptr [ %18, %21 ], [ %32, %24 ]
  %28 = mul i64 %25, 10
  %29 = zext nneg i8 %26 to i64
  %30 = add i64 %28, -48
  %31 = add i64 %30, %29
  store i64 %31, ptr %22, align 8
  %32 = getelementptr i8, ptr %27, i64 1
  %33 = load i8, ptr %32, align 1
  %34 = add i8 %33, -48
  %35 = icmp ult i8 %34, 10
  br i1 %35, label %24, label %36

36:
  %37 = add nsw i64 %17, 1
  %38 = icmp eq i8 %33, 0
  br i1 %38, label %47, label %39

39:
  %40 = phi i64 [ %17, %15 ], [ %37, %36 ]
  %41 = phi ptr [ %18, %15 ], [ %32, %36 ]
  %42 = getelementptr i8, ptr %41, i64 1
  %43 = load i8, ptr %42, align 1
  %44 = icmp ne i8 %43, 0
  %45 = icmp slt i64 %40, 5
  %46 = select i1 %44, i1 %45, i1 false
  br i1 %46, label %15, label %47

47:
  %48 = phi i64 [ %40, %39 ], [ %37, %36 ]
  %49 = icmp slt i64 %48, 5
  br i1 %49, label %59, label %50

50:
  %51 = getelementptr inbounds i8, ptr %5, i64 8
  %52 = load i64, ptr %51, align 8
  %53 = getelementptr inbounds i8, ptr %5, i64 24
  %54 = load i64, ptr %53, align 8
  %55 = add i64 %54, %52
  %56 = getelementptr inbounds i8, ptr %5, i64 32
  %57 = load i64, ptr %56, align 16
  %58 = add i64 %55, %57
  br label %59

59:
  %60 = phi i64 [ %58, %50 ], [ -1, %47 ], [ -1, %8 ]
  call void @llvm.lifetime.end.p0(i64 40, ptr nonnull %5) #12
  br label %61

61:
  %62 = phi i64 [ %60, %59 ], [ -1, %2 ]
  call void @llvm.lifetime.end.p0(i64 256, ptr nonnull %4) #12
  %63 = getelementptr inbounds i8, ptr %0, i64 104
  %64 = load i64, ptr %63, align 8
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %3) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %3, i8 0, i64 16, i1 false)
  %65 = call i32 @clock_gettime(i32 noundef 2, ptr noundef nonnull %3) #12
  %66 = load i64, ptr %3, align 8
  %67 = mul i64 %66, 1000000000
  %68 = getelementptr inbounds i8, ptr %3, i64 8
  %69 = load i64, ptr %68, align 8
  %70 = add i64 %67, %69
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %3) #12
  %71 = getelementptr inbounds i8, ptr %0, i64 112
  %72 = icmp slt i64 %62, 0
  br i1 %72, label %89, label %73

73:
  %74 = load i64, ptr %71, align 8
  %75 = sub i64 %62, %64
  %76 = mul i64 %75, 10000000
  %77 = add i64 %70, %76
  %78 = sub i64 %77, %74
  %79 = shl i64 %78, 1
  %80 = getelementptr inbounds i8, ptr %0, i64 64
  %81 = load i64, ptr %80, align 8
  %82 = shl i64 %81, 1
  %83 = or disjoint i64 %82, 1
  %84 = getelementptr inbounds i8, ptr %0, i64 96
  %85 = load i64, ptr %84, align 8
  %86 = sub i64 %1, %85
  %87 = mul i64 %83, %86
  %88 = icmp sge i64 %79, %87
  br label %89

89:
  %90 = phi i1 [ true, %61 ], [ %88, %73 ]
  store i64 %70, ptr %71, align 8
  store i64 %62, ptr %63, align 8
  %91 = getelementptr inbounds i8, ptr %0, i64 96
  store i64 %1, ptr %91, align 8
  ret i1 %90
}

; Function Attrs: nofree
declare noundef i32 @open(ptr nocapture noundef readonly, i32 noundef, ...) local_unnamed_addr #7

; Function Attrs: nofree
declare noundef i64 @read(i32 noundef, ptr nocapture noundef, i64 noundef) local_unnamed_addr #7

declare i32 @close(i32 noundef) local_unnamed_addr #1

; Function Attrs: nounwind
declare i32 @ioctl(i32 noundef, i64 noundef, ...) local_unnamed_addr #6

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite, inaccessiblemem: readwrite)
declare void @llvm.prefetch.p0(ptr nocapture readonly, i32 immarg, i32 immarg, i32 immarg) #8

declare i32 @aoti_torch_get_data_ptr(ptr noundef, ptr noundef) local_unnamed_addr #1

declare i32 @aoti_torch_get_dim(ptr noundef, ptr noundef) local_unnamed_addr #1

declare i32 @aoti_torch_get_dtype(ptr noundef, ptr noundef) local_unnamed_addr #1

declare i32 @aoti_torch_get_sizes(ptr noundef, ptr noundef) local_unnamed_addr #1

declare i32 @aoti_torch_get_strides(ptr noundef, ptr noundef) local_unnamed_addr #1

declare i32 @_ZN2at6native12is_inferenceERKNS_6TensorE(ptr noundef) local_unnamed_addr #1

declare i32 @_ZN2at6native6is_negERKNS_6TensorE(ptr noundef) local_unnamed_addr #1

declare i64 @_ZNK2at10TensorBase8_versionEv(ptr noundef) local_unnamed_addr #1

declare ptr @PyTuple_GetItem(ptr noundef, i64 noundef) local_unnamed_addr #1

declare i32 @clock_gettime(i32 noundef, ptr noundef) local_unnamed_addr #1

declare i32 @omp_get_thread_num() local_unnamed_addr #1

; Function Attrs: nounwind uwtable(sync)
define internal void @run_region(ptr noundef %0) #0 {
  %2 = alloca %struct.Time, align 8
  %3 = alloca %struct.Time, align 8
  %4 = alloca %struct.Time, align 8
  %5 = alloca %struct.Time, align 8
  %6 = alloca %struct.Time, align 8
  %7 = alloca %struct.Time, align 8
  %8 = alloca %struct.Time, align 8
  %9 = alloca %struct.Time, align 8
  %10 = alloca %struct.Time, align 8
  %11 = tail call i32 @omp_get_thread_num() #12
  %12 = tail call i32 @omp_get_num_threads() #12
  %13 = sext i32 %12 to i64
  %14 = icmp eq i32 %11, 0
  br i1 %14, label %87, label %15

15:
  %16 = sext i32 %11 to i64
  %17 = load ptr, ptr %0, align 64
  %18 = getelementptr inbounds i8, ptr %17, i64 144
  %19 = load ptr, ptr %18, align 8
  %20 = shl nsw i64 %16, 6
  %21 = getelementptr i8, ptr %19, i64 %20
  %22 = tail call i64 @pthread_self() #12
  %23 = getelementptr inbounds i8, ptr %21, i64 16
  %24 = tail call i32 @pthread_getcpuclockid(i64 noundef %22, ptr noundef nonnull %23) #12
  %25 = getelementptr inbounds i8, ptr %0, i64 432
  %26 = load i8, ptr %25, align 16
  %27 = trunc nuw i8 %26 to i1
  br i1 %27, label %28, label %35

28:
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %10) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %10, i8 0, i64 16, i1 false)
  %29 = call i32 @clock_gettime(i32 noundef 3, ptr noundef nonnull %10) #12
  %30 = load i64, ptr %10, align 8
  %31 = mul i64 %30, 1000000000
  %32 = getelementptr inbounds i8, ptr %10, i64 8
  %33 = load i64, ptr %32, align 8
  %34 = add i64 %31, %33
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %10) #12
  br label %35

35:
  %36 = phi i64 [ %34, %28 ], [ 0, %15 ]
  %37 = getelementptr inbounds i8, ptr %0, i64 464
  %38 = load atomic i64, ptr %37 acquire, align 16
  %39 = icmp eq i64 %38, 0
  br i1 %39, label %44, label %40

40:
  %41 = phi i64 [ 0, %35 ], [ %68, %65 ]
  %42 = load i8, ptr %25, align 16
  %43 = trunc nuw i8 %42 to i1
  br i1 %43, label %71, label %450

44:
  %45 = phi i64 [ %68, %65 ], [ 0, %35 ]
  %46 = phi i64 [ %67, %65 ], [ 0, %35 ]
  %47 = phi i64 [ %66, %65 ], [ 0, %35 ]
  %48 = call fastcc zeroext i1 @take_part(ptr noundef nonnull %0, i64 noundef %16, i64 noundef %13)
  br i1 %48, label %65, label %49

49:
  %50 = add i64 %47, 1
  %51 = icmp sgt i64 %50, 1200
  br i1 %51, label %52, label %61

52:
  %53 = icmp eq i64 %46, 0
  %54 = shl i64 %46, 1
  %55 = call i64 @llvm.smin.i64(i64 %54, i64 400)
  %56 = select i1 %53, i64 50, i64 %55
  %57 = mul i64 %56, 2000
  %58 = add i64 %57, %45
  %59 = trunc i64 %56 to i32
  %60 = call i32 @usleep(i32 noundef %59) #12
  br label %65

61:
  %62 = icmp sgt i64 %50, 1000
  br i1 %62, label %63, label %65

63:
  %64 = call i32 @sched_yield() #12
  br label %65

65:
  %66 = phi i64 [ %50, %52 ], [ %50, %63 ], [ %50, %61 ], [ 0, %44 ]
  %67 = phi i64 [ %56, %52 ], [ %46, %63 ], [ %46, %61 ], [ 0, %44 ]
  %68 = phi i64 [ %58, %52 ], [ %45, %63 ], [ %45, %61 ], [ %45, %44 ]
  %69 = load atomic i64, ptr %37 acquire, align 16
  %70 = icmp eq i64 %69, 0
  br i1 %70, label %44, label %40

71:
  %72 = getelementptr inbounds i8, ptr %0, i64 456
  %73 = load i64, ptr %72, align 8
  %74 = getelementptr inbounds i8, ptr %0, i64 440
  %75 = load i64, ptr %74, align 8
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %9) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %9, i8 0, i64 16, i1 false)
  %76 = call i32 @clock_gettime(i32 noundef 3, ptr noundef nonnull %9) #12
  %77 = load i64, ptr %9, align 8
  %78 = getelementptr inbounds i8, ptr %9, i64 8
  %79 = load i64, ptr %78, align 8
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %9) #12
  %80 = mul i64 %77, -1000000000
  %81 = add i64 %36, %73
  %82 = add i64 %41, %75
  %83 = add i64 %82, %79
  %84 = sub i64 %81, %83
  %85 = add i64 %84, %80
  %86 = getelementptr inbounds i8, ptr %21, i64 32
  store i64 %85, ptr %86, align 8
  br label %450

87:
  %88 = getelementptr inbounds i8, ptr %0, i64 424
  %89 = load i64, ptr %88, align 8
  %90 = sdiv i64 %89, 2
  store i64 %90, ptr %88, align 8
  %91 = getelementptr inbounds i8, ptr %0, i64 432
  %92 = load i8, ptr %91, align 16
  %93 = trunc nuw i8 %92 to i1
  br i1 %93, label %94, label %101

94:
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %8) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %8, i8 0, i64 16, i1 false)
  %95 = call i32 @clock_gettime(i32 noundef 3, ptr noundef nonnull %8) #12
  %96 = load i64, ptr %8, align 8
  %97 = mul i64 %96, 1000000000
  %98 = getelementptr inbounds i8, ptr %8, i64 8
  %99 = load i64, ptr %98, align 8
  %100 = add i64 %97, %99
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %8) #12
  br label %101

101:
  %102 = phi i64 [ %100, %94 ], [ 0, %87 ]
  %103 = getelementptr inbounds i8, ptr %0, i64 24
  %104 = load i64, ptr %103, align 8
  %105 = getelementptr inbounds i8, ptr %0, i64 32
  %106 = load i64, ptr %105, align 32
  %107 = icmp slt i64 %104, %106
  br i1 %107, label %108, label %123

108:
  %109 = getelementptr inbounds i8, ptr %0, i64 8
  %110 = getelementptr inbounds i8, ptr %0, i64 16
  %111 = getelementptr inbounds i8, ptr %0, i64 416
  %112 = getelementptr inbounds i8, ptr %0, i64 40
  %113 = getelementptr inbounds i8, ptr %0, i64 368
  %114 = getelementptr inbounds i8, ptr %0, i64 376
  %115 = getelementptr inbounds i8, ptr %0, i64 360
  %116 = getelementptr inbounds i8, ptr %0, i64 512
  %117 = getelementptr inbounds i8, ptr %0, i64 408
  %118 = getelementptr inbounds i8, ptr %6, i64 8
  %119 = getelementptr inbounds i8, ptr %5, i64 8
  %120 = getelementptr inbounds i8, ptr %4, i64 8
  %121 = getelementptr inbounds i8, ptr %3, i64 8
  %122 = getelementptr inbounds i8, ptr %0, i64 448
  br label %133

123:
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %7) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %7, i8 0, i64 16, i1 false)
  %124 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %7) #12
  %125 = load i64, ptr %7, align 8
  %126 = mul i64 %125, 1000000000
  %127 = getelementptr inbounds i8, ptr %7, i64 8
  %128 = load i64, ptr %127, align 8
  %129 = add i64 %126, %128
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %7) #12
  %130 = getelementptr inbounds i8, ptr %0, i64 456
  store i64 %129, ptr %130, align 8
  %131 = load i8, ptr %91, align 16
  %132 = trunc nuw i8 %131 to i1
  br i1 %132, label %429, label %448

133:
  %134 = phi i64 [ %106, %108 ], [ %427, %426 ]
  %135 = phi i64 [ %104, %108 ], [ %163, %426 ]
  %136 = load ptr, ptr %109, align 8
  %137 = getelementptr %struct.LaunchRecord, ptr %136, i64 %135
  %138 = getelementptr inbounds i8, ptr %137, i64 56
  %139 = load i64, ptr %138, align 8
  %140 = add i64 %139, %135
  %141 = getelementptr inbounds i8, ptr %137, i64 64
  %142 = load i64, ptr %141, align 8
  %143 = icmp eq i64 %142, 0
  %144 = icmp slt i64 %140, %134
  %145 = select i1 %143, i1 %144, i1 false
  br i1 %145, label %146, label %162

146:
  %147 = phi i64 [ %160, %159 ], [ %140, %133 ]
  %148 = getelementptr %struct.LaunchRecord, ptr %136, i64 %147
  %149 = getelementptr inbounds i8, ptr %148, i64 72
  %150 = load i64, ptr %149, align 8
  %151 = icmp eq i64 %150, 0
  br i1 %151, label %162, label %152

152:
  %153 = getelementptr inbounds i8, ptr %148, i64 64
  %154 = load i64, ptr %153, align 8
  %155 = icmp eq i64 %154, 0
  %156 = sub i64 %147, %135
  %157 = icmp slt i64 %156, 8
  %158 = and i1 %157, %155
  br i1 %158, label %159, label %162

159:
  %160 = add nsw i64 %147, 1
  %161 = icmp slt i64 %160, %134
  br i1 %161, label %146, label %162

162:
  %163 = phi i64 [ %140, %133 ], [ %134, %159 ], [ %147, %146 ], [ %147, %152 ]
  %164 = icmp sge i64 %135, %163
  br i1 %164, label %196, label %165

165:
  %166 = load ptr, ptr %110, align 16
  br label %167

167:
  %168 = phi i64 [ 0, %165 ], [ %186, %184 ]
  %169 = phi i64 [ 0, %165 ], [ %185, %184 ]
  %170 = phi i64 [ %135, %165 ], [ %189, %184 ]
  %171 = getelementptr %struct.LaunchRecord, ptr %136, i64 %170
  %172 = getelementptr inbounds i8, ptr %171, i64 40
  %173 = load i64, ptr %172, align 8
  %174 = getelementptr i64, ptr %166, i64 %173
  %175 = load i64, ptr %174, align 8
  %176 = icmp slt i64 %175, 1
  br i1 %176, label %184, label %177

177:
  %178 = add i64 %175, %168
  %179 = getelementptr inbounds i8, ptr %171, i64 48
  %180 = load i64, ptr %179, align 8
  %181 = getelementptr i64, ptr %166, i64 %180
  %182 = load i64, ptr %181, align 8
  %183 = add i64 %182, %169
  br label %184

184:
  %185 = phi i64 [ %183, %177 ], [ %169, %167 ]
  %186 = phi i64 [ %178, %177 ], [ %168, %167 ]
  %187 = getelementptr %struct.LaunchRecord, ptr %136, i64 %170, i32 7
  %188 = load i64, ptr %187, align 8
  %189 = add i64 %188, %170
  %190 = icmp slt i64 %189, %163
  br i1 %190, label %167, label %191

191:
  %192 = icmp sgt i64 %186, 1
  br i1 %192, label %193, label %196

193:
  %194 = load i64, ptr %88, align 8
  %195 = icmp sgt i64 %194, %185
  br i1 %195, label %196, label %200

196:
  %197 = phi i64 [ %186, %193 ], [ %186, %191 ], [ 0, %162 ]
  %198 = icmp sgt i64 %197, 0
  %199 = zext i1 %198 to i64
  br label %216

200:
  %201 = lshr i64 %194, 1
  %202 = udiv i64 %185, %201
  %203 = load i64, ptr %111, align 32
  %204 = call noundef i64 @llvm.smin.i64(i64 %186, i64 %202)
  %205 = call noundef i64 @llvm.smin.i64(i64 %203, i64 %204)
  %206 = icmp ugt i64 %205, 16
  br i1 %206, label %207, label %216

207:
  %208 = shl i64 %202, 4
  br label %209

209:
  %210 = phi i64 [ %205, %207 ], [ %214, %213 ]
  %211 = mul i64 %210, %210
  %212 = icmp ugt i64 %211, %208
  br i1 %212, label %213, label %216

213:
  %214 = add i64 %210, -1
  %215 = icmp ugt i64 %214, 16
  br i1 %215, label %209, label %216

216:
  %217 = phi i64 [ %199, %196 ], [ %205, %200 ], [ %210, %209 ], [ 16, %213 ]
  %218 = call noundef i64 @llvm.smin.i64(i64 %217, i64 %13)
  %219 = icmp sgt i64 %218, 1
  br i1 %219, label %220, label %377

220:
  call fastcc void @prepare(ptr noundef %0, i64 noundef %135, i64 noundef %163)
  %221 = load i64, ptr %113, align 8
  %222 = icmp ugt i64 %221, 4294967295
  br i1 %222, label %223, label %251

223:
  %224 = load ptr, ptr %114, align 8
  %225 = load i64, ptr %115, align 8
  %226 = getelementptr %struct.Prepared, ptr %112, i64 %225
  %227 = icmp ugt ptr %226, %112
  br i1 %227, label %228, label %426

228:
  %229 = phi i64 [ %247, %246 ], [ %225, %223 ]
  %230 = phi ptr [ %248, %246 ], [ %112, %223 ]
  %231 = getelementptr inbounds i8, ptr %230, i64 24
  %232 = load i64, ptr %231, align 8
  %233 = getelementptr inbounds i8, ptr %230, i64 32
  %234 = load i64, ptr %233, align 8
  %235 = add i64 %234, %232
  %236 = call i64 @llvm.umin.i64(i64 %235, i64 %221)
  %237 = icmp ult i64 %232, %236
  br i1 %237, label %238, label %246

238:
  %239 = load ptr, ptr %230, align 8
  %240 = getelementptr inbounds i8, ptr %230, i64 8
  %241 = load ptr, ptr %240, align 8
  %242 = getelementptr inbounds i8, ptr %230, i64 16
  %243 = load ptr, ptr %242, align 8
  %244 = sub i64 %236, %232
  call void %239(ptr noundef %241, ptr noundef %243, i64 noundef 0, i64 noundef %244, ptr noundef %224) #12
  %245 = load i64, ptr %115, align 8
  br label %246

246:
  %247 = phi i64 [ %245, %238 ], [ %229, %228 ]
  %248 = getelementptr i8, ptr %230, i64 40
  %249 = getelementptr %struct.Prepared, ptr %112, i64 %247
  %250 = icmp ult ptr %248, %249
  br i1 %250, label %228, label %426

251:
  store atomic i64 0, ptr %116 monotonic, align 64
  store atomic i64 %218, ptr %117 monotonic, align 8
  br label %256

252:
  %253 = load atomic i64, ptr %116 acquire, align 64
  %254 = load i64, ptr %113, align 8
  %255 = icmp ult i64 %253, %254
  br i1 %255, label %271, label %426

256:
  %257 = phi i64 [ %258, %256 ], [ %218, %251 ]
  %258 = add nsw i64 %257, -1
  %259 = mul i64 %258, %221
  %260 = udiv i64 %259, %218
  %261 = mul i64 %257, %221
  %262 = udiv i64 %261, %218
  %263 = shl i64 %262, 32
  %264 = or i64 %263, %260
  %265 = load ptr, ptr %0, align 64
  %266 = getelementptr inbounds i8, ptr %265, i64 144
  %267 = load ptr, ptr %266, align 8
  %268 = shl i64 %258, 6
  %269 = getelementptr i8, ptr %267, i64 %268
  store atomic i64 %264, ptr %269 release, align 8
  %270 = icmp ugt i64 %257, 1
  br i1 %270, label %256, label %252

271:
  %272 = phi i64 [ %373, %372 ], [ 0, %252 ]
  %273 = call fastcc zeroext i1 @take_part(ptr noundef nonnull %0, i64 noundef 0, i64 noundef %13)
  br i1 %273, label %372, label %274

274:
  %275 = add i64 %272, 1
  %276 = icmp sgt i64 %275, 1200
  br i1 %276, label %277, label %368

277:
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %6) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %6, i8 0, i64 16, i1 false)
  %278 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %6) #12
  %279 = load i64, ptr %6, align 8
  %280 = load i64, ptr %118, align 8
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %6) #12
  br label %281

281:
  %282 = phi i64 [ %301, %300 ], [ 1, %277 ]
  %283 = load ptr, ptr %0, align 64
  %284 = getelementptr inbounds i8, ptr %283, i64 144
  %285 = load ptr, ptr %284, align 8
  %286 = shl i64 %282, 6
  %287 = getelementptr i8, ptr %285, i64 %286
  %288 = getelementptr inbounds i8, ptr %287, i64 8
  %289 = load atomic i64, ptr %288 acquire, align 8
  %290 = icmp eq i64 %289, 0
  br i1 %290, label %300, label %291

291:
  %292 = getelementptr inbounds i8, ptr %287, i64 16
  %293 = load i32, ptr %292, align 8
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %5) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %5, i8 0, i64 16, i1 false)
  %294 = call i32 @clock_gettime(i32 noundef %293, ptr noundef nonnull %5) #12
  %295 = load i64, ptr %5, align 8
  %296 = mul i64 %295, 1000000000
  %297 = load i64, ptr %119, align 8
  %298 = add i64 %296, %297
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %5) #12
  %299 = getelementptr inbounds i8, ptr %287, i64 24
  store i64 %298, ptr %299, align 8
  br label %300

300:
  %301 = add nuw nsw i64 %282, 1
  %302 = icmp eq i64 %301, %13
  br i1 %302, label %303, label %281

303:
  %304 = load atomic i64, ptr %116 acquire, align 64
  %305 = load i64, ptr %113, align 8
  %306 = icmp ult i64 %304, %305
  br i1 %306, label %307, label %372

307:
  %308 = mul i64 %279, 1000000000
  %309 = add i64 %308, %280
  br label %310

310:
  %311 = phi i64 [ %325, %364 ], [ %309, %307 ]
  %312 = phi i1 [ %353, %364 ], [ false, %307 ]
  br i1 %312, label %313, label %315

313:
  %314 = call i32 @usleep(i32 noundef 50) #12
  br label %320

315:
  %316 = phi i64 [ %359, %357 ], [ 0, %310 ]
  %317 = load atomic i64, ptr %116 acquire, align 64
  %318 = load i64, ptr %113, align 8
  %319 = icmp ult i64 %317, %318
  br i1 %319, label %357, label %320

320:
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %4) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %4, i8 0, i64 16, i1 false)
  %321 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %4) #12
  %322 = load i64, ptr %4, align 8
  %323 = mul i64 %322, 1000000000
  %324 = load i64, ptr %120, align 8
  %325 = add i64 %323, %324
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %4) #12
  %326 = sub i64 %325, %311
  br label %327

327:
  %328 = phi i1 [ %353, %352 ], [ false, %320 ]
  %329 = phi i64 [ %354, %352 ], [ 1, %320 ]
  %330 = load ptr, ptr %0, align 64
  %331 = getelementptr inbounds i8, ptr %330, i64 144
  %332 = load ptr, ptr %331, align 8
  %333 = shl i64 %329, 6
  %334 = getelementptr i8, ptr %332, i64 %333
  %335 = getelementptr inbounds i8, ptr %334, i64 8
  %336 = load atomic i64, ptr %335 acquire, align 8
  %337 = icmp eq i64 %336, 0
  br i1 %337, label %352, label %338

338:
  %339 = getelementptr inbounds i8, ptr %334, i64 16
  %340 = load i32, ptr %339, align 8
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %3) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %3, i8 0, i64 16, i1 false)
  %341 = call i32 @clock_gettime(i32 noundef %340, ptr noundef nonnull %3) #12
  %342 = load i64, ptr %3, align 8
  %343 = mul i64 %342, 1000000000
  %344 = load i64, ptr %121, align 8
  %345 = add i64 %343, %344
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %3) #12
  %346 = getelementptr inbounds i8, ptr %334, i64 24
  %347 = load i64, ptr %346, align 8
  %348 = sub i64 %345, %347
  %349 = shl i64 %348, 1
  %350 = icmp slt i64 %349, %326
  %351 = or i1 %328, %350
  store i64 %345, ptr %346, align 8
  br label %352

352:
  %353 = phi i1 [ %351, %338 ], [ %328, %327 ]
  %354 = add nuw nsw i64 %329, 1
  %355 = icmp eq i64 %354, %13
  br i1 %355, label %356, label %327

356:
  br i1 %353, label %361, label %364

357:
  %358 = call i32 @sched_yield() #12
  %359 = add nuw nsw i64 %316, 1
  %360 = icmp eq i64 %359, 200
  br i1 %360, label %320, label %315

361:
  %362 = load i64, ptr %122, align 64
  %363 = add i64 %362, %326
  store i64 %363, ptr %122, align 64
  br label %364

364:
  %365 = load atomic i64, ptr %116 acquire, align 64
  %366 = load i64, ptr %113, align 8
  %367 = icmp ult i64 %365, %366
  br i1 %367, label %310, label %372

368:
  %369 = icmp sgt i64 %275, 1000
  br i1 %369, label %370, label %372

370:
  %371 = call i32 @sched_yield() #12
  br label %372

372:
  %373 = phi i64 [ %275, %370 ], [ %275, %368 ], [ 0, %271 ], [ %275, %303 ], [ %275, %364 ]
  %374 = load atomic i64, ptr %116 acquire, align 64
  %375 = load i64, ptr %113, align 8
  %376 = icmp ult i64 %374, %375
  br i1 %376, label %271, label %426

377:
  %378 = icmp ne i64 %218, 1
  %379 = or i1 %164, %378
  br i1 %379, label %426, label %380

380:
  %381 = phi i64 [ %424, %420 ], [ %135, %377 ]
  %382 = add nsw i64 %381, 1
  call fastcc void @prepare(ptr noundef %0, i64 noundef %381, i64 noundef %382)
  %383 = load ptr, ptr %109, align 8
  %384 = getelementptr %struct.LaunchRecord, ptr %383, i64 %381, i32 8
  %385 = load i64, ptr %384, align 8
  %386 = icmp eq i64 %385, 0
  br i1 %386, label %387, label %389

387:
  %388 = load i64, ptr %113, align 8
  br label %389

389:
  %390 = phi i64 [ %388, %387 ], [ 1, %380 ]
  %391 = load ptr, ptr %114, align 8
  %392 = load i64, ptr %115, align 8
  %393 = getelementptr %struct.Prepared, ptr %112, i64 %392
  %394 = icmp ugt ptr %393, %112
  br i1 %394, label %395, label %420

395:
  %396 = phi i64 [ %414, %413 ], [ %392, %389 ]
  %397 = phi ptr [ %415, %413 ], [ %112, %389 ]
  %398 = getelementptr inbounds i8, ptr %397, i64 24
  %399 = load i64, ptr %398, align 8
  %400 = getelementptr inbounds i8, ptr %397, i64 32
  %401 = load i64, ptr %400, align 8
  %402 = add i64 %401, %399
  %403 = call i64 @llvm.umin.i64(i64 %402, i64 %390)
  %404 = icmp ult i64 %399, %403
  br i1 %404, label %405, label %413

405:
  %406 = load ptr, ptr %397, align 8
  %407 = getelementptr inbounds i8, ptr %397, i64 8
  %408 = load ptr, ptr %407, align 8
  %409 = getelementptr inbounds i8, ptr %397, i64 16
  %410 = load ptr, ptr %409, align 8
  %411 = sub i64 %403, %399
  call void %406(ptr noundef %408, ptr noundef %410, i64 noundef 0, i64 noundef %411, ptr noundef %391) #12
  %412 = load i64, ptr %115, align 8
  br label %413

413:
  %414 = phi i64 [ %412, %405 ], [ %396, %395 ]
  %415 = getelementptr i8, ptr %397, i64 40
  %416 = getelementptr %struct.Prepared, ptr %112, i64 %414
  %417 = icmp ult ptr %415, %416
  br i1 %417, label %395, label %418

418:
  %419 = load ptr, ptr %109, align 8
  br label %420

420:
  %421 = phi ptr [ %419, %418 ], [ %383, %389 ]
  %422 = getelementptr %struct.LaunchRecord, ptr %421, i64 %381, i32 7
  %423 = load i64, ptr %422, align 8
  %424 = add i64 %423, %381
  %425 = icmp slt i64 %424, %163
  br i1 %425, label %380, label %426

426:
  %427 = load i64, ptr %105, align 32
  %428 = icmp slt i64 %163, %427
  br i1 %428, label %133, label %123

429:
  %430 = getelementptr inbounds i8, ptr %0, i64 440
  %431 = load i64, ptr %430, align 8
  %432 = getelementptr inbounds i8, ptr %0, i64 448
  %433 = load i64, ptr %432, align 64
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %2) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %2, i8 0, i64 16, i1 false)
  %434 = call i32 @clock_gettime(i32 noundef 3, ptr noundef nonnull %2) #12
  %435 = load i64, ptr %2, align 8
  %436 = getelementptr inbounds i8, ptr %2, i64 8
  %437 = load i64, ptr %436, align 8
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %2) #12
  %438 = mul i64 %435, -1000000000
  %439 = add i64 %129, %102
  %440 = add i64 %431, %433
  %441 = add i64 %440, %437
  %442 = sub i64 %439, %441
  %443 = add i64 %442, %438
  %444 = load ptr, ptr %0, align 64
  %445 = getelementptr inbounds i8, ptr %444, i64 144
  %446 = load ptr, ptr %445, align 8
  %447 = getelementptr inbounds i8, ptr %446, i64 32
  store i64 %443, ptr %447, align 8
  br label %448

448:
  %449 = getelementptr inbounds i8, ptr %0, i64 464
  store atomic i64 1, ptr %449 release, align 16
  br label %450

450:
  ret void
}

declare i32 @omp_get_num_threads() local_unnamed_addr #1

; Function Attrs: nofree norecurse nosync nounwind memory(readwrite, inaccessiblemem: none) uwtable(sync)
define internal fastcc void @prepare(ptr nocapture noundef %0, i64 noundef %1, i64 noundef %2) unnamed_addr #3 {
  %4 = getelementptr inbounds i8, ptr %0, i64 368
  %5 = getelementptr inbounds i8, ptr %0, i64 360
  %6 = icmp slt i64 %1, %2
  tail call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %5, i8 0, i64 16, i1 false)
  br i1 %6, label %7, label %88

7:
  %8 = getelementptr inbounds i8, ptr %0, i64 16
  %9 = getelementptr inbounds i8, ptr %0, i64 8
  %10 = getelementptr inbounds i8, ptr %0, i64 40
  br label %11

11:
  %12 = phi i64 [ 0, %7 ], [ %85, %84 ]
  %13 = phi i64 [ %1, %7 ], [ %86, %84 ]
  %14 = load ptr, ptr %8, align 16
  %15 = load ptr, ptr %9, align 8
  %16 = getelementptr %struct.LaunchRecord, ptr %15, i64 %13, i32 5
  %17 = load i64, ptr %16, align 8
  %18 = getelementptr i64, ptr %14, i64 %17
  %19 = load i64, ptr %18, align 8
  %20 = icmp sgt i64 %19, 0
  br i1 %20, label %21, label %84

21:
  %22 = getelementptr %struct.LaunchRecord, ptr %15, i64 %13
  %23 = getelementptr inbounds i8, ptr %22, i64 16
  %24 = load ptr, ptr %23, align 8
  %25 = getelementptr inbounds i8, ptr %22, i64 32
  %26 = load ptr, ptr %25, align 8
  %27 = load ptr, ptr %0, align 64
  %28 = getelementptr i8, ptr %27, i64 160
  %29 = getelementptr [8 x %struct.Prepared], ptr %10, i64 0, i64 %12
  %30 = getelementptr inbounds i8, ptr %22, i64 72
  %31 = load i64, ptr %30, align 8
  %32 = getelementptr inbounds i8, ptr %22, i64 8
  %33 = load i64, ptr %32, align 8
  %34 = icmp sgt i64 %33, 0
  br i1 %34, label %35, label %37

35:
  %36 = getelementptr inbounds i8, ptr %29, i64 8
  br label %43

37:
  %38 = getelementptr inbounds i8, ptr %22, i64 24
  %39 = load i64, ptr %38, align 8
  %40 = icmp sgt i64 %39, 0
  br i1 %40, label %41, label %66

41:
  %42 = getelementptr inbounds i8, ptr %29, i64 16
  br label %54

43:
  %44 = phi i64 [ 0, %35 ], [ %51, %43 ]
  %45 = getelementptr i64, ptr %24, i64 %44
  %46 = load i64, ptr %45, align 8
  %47 = getelementptr ptr, ptr %28, i64 %46
  %48 = load ptr, ptr %47, align 8
  %49 = load ptr, ptr %36, align 8
  %50 = getelementptr ptr, ptr %49, i64 %44
  store ptr %48, ptr %50, align 8
  %51 = add nuw nsw i64 %44, 1
  %52 = load i64, ptr %32, align 8
  %53 = icmp slt i64 %51, %52
  br i1 %53, label %43, label %37

54:
  %55 = phi i64 [ 0, %41 ], [ %63, %54 ]
  %56 = load ptr, ptr %8, align 16
  %57 = getelementptr i64, ptr %26, i64 %55
  %58 = load i64, ptr %57, align 8
  %59 = getelementptr i64, ptr %56, i64 %58
  %60 = load i64, ptr %59, align 8
  %61 = load ptr, ptr %42, align 8
  %62 = getelementptr i64, ptr %61, i64 %55
  store i64 %60, ptr %62, align 8
  %63 = add nuw nsw i64 %55, 1
  %64 = load i64, ptr %38, align 8
  %65 = icmp slt i64 %63, %64
  br i1 %65, label %54, label %66

66:
  %67 = icmp eq i64 %31, 2
  %68 = icmp ne i64 %12, 0
  %69 = select i1 %67, i1 %68, i1 false
  %70 = load ptr, ptr %22, align 8
  store ptr %70, ptr %29, align 8
  %71 = getelementptr i8, ptr %29, i64 -16
  %72 = select i1 %69, ptr %71, ptr %4
  %73 = load i64, ptr %72, align 8
  %74 = getelementptr inbounds i8, ptr %29, i64 24
  store i64 %73, ptr %74, align 8
  %75 = load ptr, ptr %8, align 16
  %76 = getelementptr inbounds i8, ptr %22, i64 40
  %77 = load i64, ptr %76, align 8
  %78 = getelementptr i64, ptr %75, i64 %77
  %79 = load i64, ptr %78, align 8
  %80 = getelementptr inbounds i8, ptr %29, i64 32
  store i64 %79, ptr %80, align 8
  %81 = add i64 %79, %73
  store i64 %81, ptr %4, align 8
  %82 = load i64, ptr %5, align 8
  %83 = add i64 %82, 1
  store i64 %83, ptr %5, align 8
  br label %84

84:
  %85 = phi i64 [ %12, %11 ], [ %83, %66 ]
  %86 = add nsw i64 %13, 1
  %87 = icmp eq i64 %86, %2
  br i1 %87, label %88, label %11

88:
  ret void
}

declare i32 @pthread_getcpuclockid(i64 noundef, ptr noundef) local_unnamed_addr #1

declare i64 @pthread_self() local_unnamed_addr #1

; Function Attrs: nounwind uwtable(sync)
define internal fastcc noundef zeroext i1 @take_part(ptr noundef %0, i64 noundef %1, i64 noundef %2) unnamed_addr #0 {
  %4 = load ptr, ptr %0, align 64
  %5 = getelementptr inbounds i8, ptr %4, i64 144
  %6 = load ptr, ptr %5, align 8
  %7 = shl i64 %1, 6
  %8 = getelementptr i8, ptr %6, i64 %7
  %9 = getelementptr inbounds i8, ptr %0, i64 512
  %10 = getelementptr inbounds i8, ptr %0, i64 408
  %11 = icmp slt i64 %2, 2
  %12 = getelementptr inbounds i8, ptr %8, i64 8
  %13 = getelementptr inbounds i8, ptr %0, i64 40
  %14 = getelementptr inbounds i8, ptr %0, i64 376
  %15 = getelementptr inbounds i8, ptr %0, i64 384
  %16 = getelementptr inbounds i8, ptr %0, i64 360
  br label %17

17:
  %18 = phi i64 [ 0, %3 ], [ %134, %132 ]
  %19 = phi i1 [ false, %3 ], [ true, %132 ]
  %20 = load atomic i64, ptr %8 acquire, align 8
  %21 = lshr i64 %20, 32
  %22 = and i64 %20, 4294967295
  %23 = icmp eq i64 %21, %22
  br i1 %23, label %46, label %24

24:
  %25 = phi i64 [ %39, %36 ], [ %22, %17 ]
  %26 = phi i64 [ %38, %36 ], [ %21, %17 ]
  %27 = phi i64 [ %37, %36 ], [ %20, %17 ]
  %28 = sub nsw i64 %26, %25
  %29 = add nsw i64 %28, 1
  %30 = lshr i64 %29, 1
  %31 = add nuw i64 %30, %25
  %32 = and i64 %27, -4294967296
  %33 = or i64 %31, %32
  %34 = cmpxchg ptr %8, i64 %27, i64 %33 acq_rel acquire, align 8
  %35 = extractvalue { i64, i1 } %34, 1
  br i1 %35, label %41, label %36

36:
  %37 = extractvalue { i64, i1 } %34, 0
  %38 = lshr i64 %37, 32
  %39 = and i64 %37, 4294967295
  %40 = icmp eq i64 %38, %39
  br i1 %40, label %46, label %24

41:
  %42 = and i64 %27, 4294967295
  %43 = shl i64 %31, 32
  %44 = or disjoint i64 %43, %42
  %45 = icmp eq i64 %44, 0
  br i1 %45, label %46, label %95

46:
  %47 = icmp eq i64 %18, 0
  br i1 %47, label %50, label %48

48:
  %49 = atomicrmw add ptr %9, i64 %18 release, align 64
  br label %50

50:
  %51 = load atomic i64, ptr %10 monotonic, align 8
  %52 = icmp sle i64 %51, %1
  %53 = or i1 %11, %52
  br i1 %53, label %135, label %54

54:
  %55 = phi i64 [ %89, %88 ], [ 1, %50 ]
  %56 = add i64 %55, %1
  %57 = srem i64 %56, %2
  %58 = load ptr, ptr %0, align 64
  %59 = getelementptr inbounds i8, ptr %58, i64 144
  %60 = load ptr, ptr %59, align 8
  %61 = shl i64 %57, 6
  %62 = getelementptr i8, ptr %60, i64 %61
  %63 = load atomic i64, ptr %62 acquire, align 8
  %64 = lshr i64 %63, 32
  %65 = and i64 %63, 4294967295
  %66 = icmp eq i64 %64, %65
  br i1 %66, label %88, label %67

67:
  %68 = sub nsw i64 %64, %65
  br label %69

69:
  %70 = phi i64 [ %86, %82 ], [ %68, %67 ]
  %71 = phi i64 [ %85, %82 ], [ %65, %67 ]
  %72 = phi i64 [ %83, %82 ], [ %63, %67 ]
  %73 = load atomic i64, ptr %10 monotonic, align 8
  %74 = icmp sgt i64 %73, %1
  br i1 %74, label %75, label %88

75:
  %76 = lshr i64 %70, 1
  %77 = add nuw i64 %76, %71
  %78 = shl i64 %77, 32
  %79 = or disjoint i64 %78, %71
  %80 = cmpxchg ptr %62, i64 %72, i64 %79 acq_rel acquire, align 8
  %81 = extractvalue { i64, i1 } %80, 1
  br i1 %81, label %91, label %82

82:
  %83 = extractvalue { i64, i1 } %80, 0
  %84 = lshr i64 %83, 32
  %85 = and i64 %83, 4294967295
  %86 = sub nsw i64 %84, %85
  %87 = icmp eq i64 %84, %85
  br i1 %87, label %88, label %69

88:
  %89 = add nuw nsw i64 %55, 1
  %90 = icmp eq i64 %89, %2
  br i1 %90, label %135, label %54

91:
  %92 = and i64 %72, -4294967296
  %93 = or i64 %92, %77
  %94 = icmp eq i64 %93, 0
  br i1 %94, label %135, label %95

95:
  %96 = phi i64 [ 0, %91 ], [ %18, %41 ]
  %97 = phi i64 [ %93, %91 ], [ %44, %41 ]
  store atomic i64 1, ptr %12 release, align 8
  %98 = load ptr, ptr %14, align 8
  %99 = load i64, ptr %15, align 8
  %100 = mul i64 %99, %1
  %101 = getelementptr i8, ptr %98, i64 %100
  %102 = and i64 %97, 4294967295
  %103 = lshr i64 %97, 32
  %104 = load i64, ptr %16, align 8
  %105 = getelementptr %struct.Prepared, ptr %13, i64 %104
  %106 = icmp ugt ptr %105, %13
  br i1 %106, label %107, label %132

107:
  %108 = phi i64 [ %128, %127 ], [ %104, %95 ]
  %109 = phi ptr [ %129, %127 ], [ %13, %95 ]
  %110 = getelementptr inbounds i8, ptr %109, i64 24
  %111 = load i64, ptr %110, align 8
  %112 = getelementptr inbounds i8, ptr %109, i64 32
  %113 = load i64, ptr %112, align 8
  %114 = add i64 %113, %111
  %115 = tail call i64 @llvm.umax.i64(i64 %111, i64 %102)
  %116 = tail call i64 @llvm.umin.i64(i64 %114, i64 %103)
  %117 = icmp ult i64 %115, %116
  br i1 %117, label %118, label %127

118:
  %119 = load ptr, ptr %109, align 8
  %120 = getelementptr inbounds i8, ptr %109, i64 8
  %121 = load ptr, ptr %120, align 8
  %122 = getelementptr inbounds i8, ptr %109, i64 16
  %123 = load ptr, ptr %122, align 8
  %124 = sub i64 %115, %111
  %125 = sub i64 %116, %111
  tail call void %119(ptr noundef %121, ptr noundef %123, i64 noundef %124, i64 noundef %125, ptr noundef %101) #12
  %126 = load i64, ptr %16, align 8
  br label %127

127:
  %128 = phi i64 [ %126, %118 ], [ %108, %107 ]
  %129 = getelementptr i8, ptr %109, i64 40
  %130 = getelementptr %struct.Prepared, ptr %13, i64 %128
  %131 = icmp ult ptr %129, %130
  br i1 %131, label %107, label %132

132:
  store atomic i64 0, ptr %12 monotonic, align 8
  %133 = sub i64 %96, %102
  %134 = add i64 %133, %103
  br label %17

135:
  ret i1 %19
}

declare i32 @usleep(i32 noundef) local_unnamed_addr #1

declare i32 @sched_yield() local_unnamed_addr #1

; Function Attrs: nounwind uwtable(sync)
define internal void @run_driver(ptr nocapture noundef %0) #0 {
  %2 = alloca %struct.Time, align 8
  %3 = alloca %struct.Time, align 8
  %4 = alloca %struct.Time, align 8
  %5 = tail call i32 @omp_get_thread_num() #12
  %6 = sext i32 %5 to i64
  %7 = tail call i32 @omp_get_num_threads() #12
  %8 = sext i32 %7 to i64
  %9 = getelementptr inbounds i8, ptr %0, i64 336
  %10 = load ptr, ptr %9, align 8
  %11 = getelementptr inbounds i8, ptr %0, i64 344
  %12 = load i64, ptr %11, align 8
  %13 = mul i64 %12, %6
  %14 = getelementptr i8, ptr %10, i64 %13
  %15 = icmp eq i32 %5, 0
  br i1 %15, label %16, label %20

16:
  %17 = load ptr, ptr %0, align 8
  %18 = getelementptr inbounds i8, ptr %0, i64 8
  %19 = load ptr, ptr %18, align 8
  tail call void %17(ptr noundef %19, ptr noundef null, i64 noundef %6, i64 noundef %8, ptr noundef %14) #12
  br label %54

20:
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %4) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %4, i8 0, i64 16, i1 false)
  %21 = call i32 @clock_gettime(i32 noundef 3, ptr noundef nonnull %4) #12
  %22 = load i64, ptr %4, align 8
  %23 = getelementptr inbounds i8, ptr %4, i64 8
  %24 = load i64, ptr %23, align 8
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %4) #12
  %25 = load ptr, ptr %0, align 8
  %26 = getelementptr inbounds i8, ptr %0, i64 8
  %27 = load ptr, ptr %26, align 8
  call void %25(ptr noundef %27, ptr noundef null, i64 noundef %6, i64 noundef %8, ptr noundef %14) #12
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %3) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %3, i8 0, i64 16, i1 false)
  %28 = call i32 @clock_gettime(i32 noundef 3, ptr noundef nonnull %3) #12
  %29 = load i64, ptr %3, align 8
  %30 = getelementptr inbounds i8, ptr %3, i64 8
  %31 = load i64, ptr %30, align 8
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %3) #12
  call void @llvm.lifetime.start.p0(i64 16, ptr nonnull %2) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %2, i8 0, i64 16, i1 false)
  %32 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %2) #12
  %33 = load i64, ptr %2, align 8
  %34 = getelementptr inbounds i8, ptr %2, i64 8
  %35 = load i64, ptr %34, align 8
  call void @llvm.lifetime.end.p0(i64 16, ptr nonnull %2) #12
  %36 = getelementptr inbounds i8, ptr %0, i64 352
  %37 = load i64, ptr %36, align 8
  %38 = sub i64 %22, %29
  %39 = add i64 %38, %33
  %40 = mul i64 %39, 1000000000
  %41 = add i64 %24, %35
  %42 = add i64 %31, %37
  %43 = sub i64 %41, %42
  %44 = add i64 %43, %40
  %45 = getelementptr inbounds i8, ptr %0, i64 360
  %46 = load atomic i64, ptr %45 monotonic, align 8
  br label %47

47:
  %48 = phi i64 [ %46, %20 ], [ %53, %50 ]
  %49 = icmp sgt i64 %44, %48
  br i1 %49, label %50, label %54

50:
  %51 = cmpxchg ptr %45, i64 %48, i64 %44 monotonic monotonic, align 8
  %52 = extractvalue { i64, i1 } %51, 1
  %53 = extractvalue { i64, i1 } %51, 0
  br i1 %52, label %54, label %47

54:
  ret void
}

declare ptr @_ZN2at13globalContextEv() local_unnamed_addr #1

declare i32 @_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE(i32 noundef) local_unnamed_addr #1

declare i32 @_ZNK2at7Context23deterministicAlgorithmsEv(ptr noundef) local_unnamed_addr #1

declare i32 @_ZN3c108GradMode10is_enabledEv() local_unnamed_addr #1

declare i64 @_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv() local_unnamed_addr #1

declare i64 @_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv() local_unnamed_addr #1

declare i32 @_ZN3c1031get_default_dtype_as_scalartypeEv() local_unnamed_addr #1

declare i32 @_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE(i32 noundef) local_unnamed_addr #1

declare i32 @_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE(ptr noundef, i32 noundef, i32 noundef) local_unnamed_addr #1

declare i32 @fegetmode(ptr noundef) local_unnamed_addr #1

; Function Attrs: nounwind uwtable(sync)
define internal fastcc zeroext i1 @read_layout(ptr nocapture noundef readonly %0, ptr noundef %1, i64 noundef %2, i64 noundef %3, ptr noundef %4) unnamed_addr #0 {
  %6 = alloca i32, align 4
  %7 = alloca i64, align 8
  %8 = alloca ptr, align 8
  %9 = getelementptr inbounds i8, ptr %1, i64 8
  %10 = load ptr, ptr %9, align 8
  %11 = getelementptr inbounds i8, ptr %0, i64 80
  %12 = load ptr, ptr %11, align 8
  %13 = icmp eq ptr %10, %12
  br i1 %13, label %18, label %14

14:
  %15 = getelementptr inbounds i8, ptr %0, i64 88
  %16 = load ptr, ptr %15, align 8
  %17 = icmp eq ptr %10, %16
  br i1 %17, label %18, label %55

18:
  %19 = getelementptr inbounds i8, ptr %0, i64 96
  %20 = load i64, ptr %19, align 8
  %21 = getelementptr i8, ptr %1, i64 %20
  call void @llvm.lifetime.start.p0(i64 4, ptr nonnull %6) #12
  store i32 0, ptr %6, align 4
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %7) #12
  store i64 0, ptr %7, align 8
  call void @llvm.lifetime.start.p0(i64 8, ptr nonnull %8) #12
  %22 = load ptr, ptr %21, align 8
  %23 = icmp eq ptr %22, null
  br i1 %23, label %53, label %24

24:
  %25 = call i32 @aoti_torch_get_layout(ptr noundef nonnull %21, ptr noundef nonnull %6) #12
  %26 = icmp ne i32 %25, 0
  %27 = load i32, ptr %6, align 4
  %28 = icmp ne i32 %27, 0
  %29 = select i1 %26, i1 true, i1 %28
  br i1 %29, label %53, label %30

30:
  %31 = icmp eq i64 %2, 13
  br i1 %31, label %32, label %35

32:
  %33 = call i32 @aoti_torch_get_storage_offset(ptr noundef nonnull %21, ptr noundef %4) #12
  %34 = icmp eq i32 %33, 0
  br label %53

35:
  %36 = call i32 @aoti_torch_get_dim(ptr noundef nonnull %21, ptr noundef nonnull %7) #12
  %37 = icmp eq i32 %36, 0
  %38 = load i64, ptr %7, align 8
  %39 = icmp sgt i64 %38, %3
  %40 = select i1 %37, i1 %39, i1 false
  br i1 %40, label %41, label %53

41:
  %42 = icmp eq i64 %2, 12
  br i1 %42, label %43, label %46

43:
  %44 = call i32 @aoti_torch_get_strides(ptr noundef nonnull %21, ptr noundef nonnull %8) #12
  %45 = icmp eq i32 %44, 0
  br i1 %45, label %49, label %53

46:
  %47 = call i32 @aoti_torch_get_sizes(ptr noundef nonnull %21, ptr noundef nonnull %8) #12
  %48 = icmp eq i32 %47, 0
  br i1 %48, label %49, label %53

49:
  %50 = load ptr, ptr %8, align 8
  %51 = getelementptr i64, ptr %50, i64 %3
  %52 = load i64, ptr %51, align 8
  store i64 %52, ptr %4, align 8
  br label %53

53:
  %54 = phi i1 [ %34, %32 ], [ true, %49 ], [ false, %24 ], [ false, %18 ], [ false, %35 ], [ false, %46 ], [ false, %43 ]
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %8) #12
  call void @llvm.lifetime.end.p0(i64 8, ptr nonnull %7) #12
  call void @llvm.lifetime.end.p0(i64 4, ptr nonnull %6) #12
  br label %55

55:
  %56 = phi i1 [ %54, %53 ], [ false, %14 ]
  ret i1 %56
}

declare i64 @PyLong_AsLongLongAndOverflow(ptr noundef, ptr noundef) local_unnamed_addr #1

declare i32 @aoti_torch_get_layout(ptr noundef, ptr noundef) local_unnamed_addr #1

declare i32 @aoti_torch_get_storage_offset(ptr noundef, ptr noundef) local_unnamed_addr #1

declare i32 @PyDict_Next(ptr noundef, ptr noundef, ptr noundef, ptr noundef) local_unnamed_addr #1

declare ptr @_PyObject_GetDictPtr(ptr noundef) local_unnamed_addr #1

declare ptr @_PyDict_GetItem_KnownHash(ptr noundef, ptr noundef, i64 noundef) local_unnamed_addr #1

; Function Attrs: nofree nounwind memory(readwrite, inaccessiblemem: none) uwtable(sync)
define internal fastcc noundef zeroext i1 @no_alias(ptr nocapture noundef readonly %0, ptr nocapture noundef readonly %1, ptr nocapture noundef readonly %2) unnamed_addr #9 {
  %4 = load ptr, ptr %1, align 8
  %5 = getelementptr inbounds i8, ptr %4, i64 8
  %6 = load ptr, ptr %5, align 8
  %7 = getelementptr inbounds i8, ptr %0, i64 48
  %8 = load i64, ptr %7, align 8
  %9 = getelementptr inbounds i8, ptr %0, i64 128
  %10 = load ptr, ptr %9, align 8
  %11 = getelementptr inbounds i8, ptr %0, i64 136
  %12 = load ptr, ptr %11, align 8
  %13 = getelementptr inbounds i8, ptr %0, i64 120
  %14 = load i64, ptr %13, align 8
  %15 = icmp eq i64 %14, 0
  br i1 %15, label %143, label %16

16:
  %17 = mul i64 %8, 24
  %18 = alloca i8, i64 %17, align 16
  %19 = icmp sgt i64 %8, 0
  br i1 %19, label %20, label %142

20:
  %21 = getelementptr inbounds i8, ptr %0, i64 56
  %22 = getelementptr inbounds i8, ptr %0, i64 96
  %23 = getelementptr inbounds i8, ptr %0, i64 144
  %24 = getelementptr inbounds i8, ptr %1, i64 8
  %25 = getelementptr i8, ptr %1, i64 160
  br label %27

26:
  br i1 %19, label %96, label %142

27:
  %28 = phi i64 [ 0, %20 ], [ %94, %93 ]
  %29 = getelementptr %struct.PlaceRecord, ptr %18, i64 %28
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(24) %29, i8 0, i64 24, i1 false)
  %30 = getelementptr i64, ptr %10, i64 %28
  %31 = load i64, ptr %30, align 8
  %32 = icmp eq i64 %31, 0
  br i1 %32, label %93, label %33

33:
  %34 = load ptr, ptr %21, align 8
  %35 = getelementptr i64, ptr %34, i64 %28
  %36 = load i64, ptr %35, align 8
  %37 = getelementptr ptr, ptr %2, i64 %36
  %38 = load ptr, ptr %37, align 8
  %39 = load i64, ptr %22, align 8
  %40 = getelementptr i8, ptr %38, i64 %39
  %41 = load ptr, ptr %40, align 8
  %42 = load i64, ptr %23, align 8
  %43 = getelementptr i8, ptr %41, i64 %42
  %44 = load i64, ptr %43, align 8
  %45 = icmp eq i64 %44, 0
  br i1 %45, label %143, label %46

46:
  %47 = getelementptr %struct.InputRecord, ptr %6, i64 %28
  %48 = load ptr, ptr %24, align 8
  %49 = load i64, ptr %47, align 8
  %50 = getelementptr ptr, ptr %25, i64 %49
  %51 = load ptr, ptr %50, align 8
  %52 = getelementptr inbounds i8, ptr %47, i64 24
  %53 = load ptr, ptr %52, align 8
  %54 = getelementptr inbounds i8, ptr %47, i64 8
  %55 = load i64, ptr %54, align 8
  %56 = getelementptr i64, ptr %53, i64 %55
  %57 = ptrtoint ptr %51 to i64
  %58 = getelementptr inbounds i8, ptr %47, i64 16
  %59 = load i32, ptr %58, align 8
  %60 = lshr i32 %59, 8
  %61 = and i32 %60, 255
  %62 = ashr i32 %59, 16
  %63 = mul nsw i32 %61, %62
  %64 = sdiv i32 %63, 8
  %65 = sext i32 %64 to i64
  %66 = icmp sgt i64 %55, 0
  br i1 %66, label %67, label %85

67:
  %68 = phi i64 [ %83, %75 ], [ 0, %46 ]
  %69 = phi i64 [ %82, %75 ], [ 1, %46 ]
  %70 = getelementptr i64, ptr %53, i64 %68
  %71 = load i64, ptr %70, align 8
  %72 = getelementptr i64, ptr %48, i64 %71
  %73 = load i64, ptr %72, align 8
  %74 = icmp eq i64 %73, 0
  br i1 %74, label %89, label %75

75:
  %76 = add i64 %73, -1
  %77 = getelementptr i64, ptr %56, i64 %68
  %78 = load i64, ptr %77, align 8
  %79 = getelementptr i64, ptr %48, i64 %78
  %80 = load i64, ptr %79, align 8
  %81 = mul i64 %80, %76
  %82 = add i64 %81, %69
  %83 = add nuw nsw i64 %68, 1
  %84 = icmp eq i64 %83, %55
  br i1 %84, label %85, label %67

85:
  %86 = phi i64 [ 1, %46 ], [ %82, %75 ]
  %87 = mul i64 %86, %65
  %88 = add i64 %87, %57
  br label %89

89:
  %90 = phi i64 [ %88, %85 ], [ %57, %67 ]
  store i64 %44, ptr %29, align 8
  %91 = getelementptr inbounds i8, ptr %29, i64 8
  store i64 %57, ptr %91, align 8
  %92 = getelementptr inbounds i8, ptr %29, i64 16
  store i64 %90, ptr %92, align 8
  br label %93

93:
  %94 = add nuw nsw i64 %28, 1
  %95 = icmp eq i64 %94, %8
  br i1 %95, label %26, label %27

96:
  %97 = phi i64 [ %140, %139 ], [ 0, %26 ]
  %98 = getelementptr i64, ptr %10, i64 %97
  %99 = load i64, ptr %98, align 8
  %100 = icmp eq i64 %99, 0
  br i1 %100, label %139, label %101

101:
  %102 = getelementptr %struct.PlaceRecord, ptr %18, i64 %97
  %103 = getelementptr %struct.PlaceRecord, ptr %12, i64 %97
  %104 = call i32 @bcmp(ptr noundef nonnull dereferenceable(24) %102, ptr noundef nonnull dereferenceable(24) %103, i64 24)
  %105 = icmp eq i32 %104, 0
  br i1 %105, label %139, label %106

106:
  %107 = getelementptr inbounds i8, ptr %102, i64 8
  %108 = getelementptr inbounds i8, ptr %102, i64 16
  br label %109

109:
  %110 = phi i64 [ 0, %106 ], [ %137, %136 ]
  %111 = getelementptr i64, ptr %10, i64 %110
  %112 = load i64, ptr %111, align 8
  %113 = or i64 %112, %99
  %114 = icmp eq i64 %110, %97
  %115 = and i64 %113, 1
  %116 = icmp eq i64 %115, 0
  %117 = select i1 %114, i1 true, i1 %116
  br i1 %117, label %136, label %118

118:
  %119 = getelementptr %struct.PlaceRecord, ptr %18, i64 %110
  %120 = load i64, ptr %119, align 8
  %121 = load i64, ptr %102, align 8
  %122 = icmp eq i64 %120, %121
  br i1 %122, label %143, label %123

123:
  %124 = and i64 %113, 2
  %125 = icmp eq i64 %124, 0
  br i1 %125, label %136, label %126

126:
  %127 = load i64, ptr %107, align 8
  %128 = getelementptr inbounds i8, ptr %119, i64 16
  %129 = load i64, ptr %128, align 8
  %130 = icmp slt i64 %127, %129
  br i1 %130, label %131, label %136

131:
  %132 = getelementptr inbounds i8, ptr %119, i64 8
  %133 = load i64, ptr %132, align 8
  %134 = load i64, ptr %108, align 8
  %135 = icmp slt i64 %133, %134
  br i1 %135, label %143, label %136

136:
  %137 = add nuw nsw i64 %110, 1
  %138 = icmp eq i64 %137, %8
  br i1 %138, label %139, label %109

139:
  %140 = add nuw nsw i64 %97, 1
  %141 = icmp eq i64 %140, %8
  br i1 %141, label %142, label %96

142:
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %12, ptr nonnull align 16 %18, i64 %17, i1 false)
  br label %143

143:
  %144 = phi i1 [ true, %3 ], [ true, %142 ], [ false, %131 ], [ false, %118 ], [ false, %33 ]
  ret i1 %144
}

declare i32 @_ZNK3c1010TensorImpl13requires_gradEv(ptr noundef) local_unnamed_addr #1

declare i32 @aoti_torch_get_device_type(ptr noundef, ptr noundef) local_unnamed_addr #1

declare void @Py_IncRef(ptr noundef) local_unnamed_addr #1

declare i32 @PyList_SetItem(ptr noundef, i64 noundef, ptr noundef) local_unnamed_addr #1

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.smin.i64(i64, i64) #10

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.smax.i64(i64, i64) #10

; Function Attrs: nofree nounwind willreturn memory(argmem: read)
declare i32 @bcmp(ptr nocapture, ptr nocapture, i64) local_unnamed_addr #11

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.umax.i64(i64, i64) #10

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.umin.i64(i64, i64) #10

attributes #0 = { nounwind "no-jump-tables"="true" "no-trapping-math"="true" }
attributes #1 = { "no-trapping-math"="true" }
attributes #2 = { mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #3 = { nofree norecurse nosync nounwind memory(readwrite, inaccessiblemem: none) "no-jump-tables"="true" "no-trapping-math"="true" }
attributes #4 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: write) }
attributes #5 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite) }
attributes #6 = { nounwind "no-trapping-math"="true" }
attributes #7 = { nofree "no-trapping-math"="true" }
attributes #8 = { mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite, inaccessiblemem: readwrite) }
attributes #9 = { nofree nounwind memory(readwrite, inaccessiblemem: none) "no-jump-tables"="true" "no-trapping-math"="true" }
attributes #10 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #11 = { nofree nounwind willreturn memory(argmem: read) }
attributes #12 = { nounwind }
