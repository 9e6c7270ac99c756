target triple = "x86_64-unknown-linux-gnu"
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare <16 x i16> @llvm.masked.load.v16i16.p0(ptr, i32, <16 x i1>, <16 x i16>)
declare <16 x float> @llvm.fabs.v16f32(<16 x float>)
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare void @llvm.masked.store.v16i16.p0(<16 x i16>, ptr, i32, <16 x i1>)
define internal void @silu.tasks(ptr readonly %b0, ptr %b1, i64 %d0, i64 %begin, i64 %end, ptr noalias %scratch) #0 {
entry:
%t3 = icmp slt i64 %begin, %end
br i1 %t3, label %run1, label %done2
run1:
br label %enter4
enter4:
br label %loop5
loop5:
%t7 = phi i64 [ 0, %enter4 ], [ %t65, %loop5 ]
%t8 = mul i64 %t7, -1
%t9 = add i64 %d0, %t8
%t10 = call i64 @llvm.smin.i64(i64 %t9, i64 16)
%t11 = call i64 @llvm.smax.i64(i64 %t10, i64 0)
%t12 = trunc i64 %t11 to i32
%t13 = insertelement <16 x i32> poison, i32 %t12, i64 0
%t14 = shufflevector <16 x i32> %t13, <16 x i32> poison, <16 x i32> zeroinitializer
%t15 = icmp slt <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %t14
%t16 = getelementptr i16, ptr %b0, i64 %t7
%t17 = call <16 x i16> @llvm.masked.load.v16i16.p0(ptr %t16, i32 2, <16 x i1> %t15, <16 x i16> zeroinitializer)
%t18 = zext <16 x i16> %t17 to <16 x i32>
%t19 = shl <16 x i32> %t18, splat (i32 16)
%t20 = bitcast <16 x i32> %t19 to <16 x float>
%t21 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %t20)
%t22 = fneg <16 x float> %t21
%t23 = fcmp ogt <16 x float> splat (float 0xC05A200000000000), %t22
%t24 = select <16 x i1> %t23, <16 x float> splat (float 0xC05A200000000000), <16 x float> %t22
%t25 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t24, <16 x float> splat (float 0x3FF7154760000000), <16 x float> splat (float 0x4168000000000000))
%t26 = fsub <16 x float> %t25, splat (float 0x4168000000000000)
%t27 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t26, <16 x float> splat (float 0xBFE62E4300000000), <16 x float> %t24)
%t28 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t26, <16 x float> splat (float 0x3E205C6100000000), <16 x float> %t27)
%t29 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F56A22540000000), <16 x float> %t28, <16 x float> splat (float 0x3F8123B020000000))
%t30 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t29, <16 x float> %t28, <16 x float> splat (float 0x3FA5558F80000000))
%t31 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t30, <16 x float> %t28, <16 x float> splat (float 0x3FC5554900000000))
%t32 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t31, <16 x float> %t28, <16 x float> splat (float 0x3FDFFFFFC0000000))
%t33 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t32, <16 x float> %t28, <16 x float> splat (float 0x3FF0000000000000))
%t34 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t33, <16 x float> %t28, <16 x float> splat (float 0x3FF0000000000000))
%t35 = fcmp olt <16 x float> %t26, splat (float 0xC05F000000000000)
%t36 = bitcast <16 x float> %t25 to <16 x i32>
%t37 = select <16 x i1> %t35, <16 x i32> splat (i32 1593835520), <16 x i32> splat (i32 1056964608)
%t38 = bitcast <16 x float> %t25 to <16 x i32>
%t39 = shl <16 x i32> %t38, splat (i32 23)
%t40 = add <16 x i32> %t39, %t37
%t41 = bitcast <16 x i32> %t40 to <16 x float>
%t42 = select <16 x i1> %t35, <16 x float> splat (float 0x3C00000000000000), <16 x float> splat (float 0x4000000000000000)
%t43 = fmul <16 x float> %t34, %t41
%t44 = fmul <16 x float> %t43, %t42
%t45 = fcmp olt <16 x float> %t20, splat (float 0x0000000000000000)
%t46 = select <16 x i1> %t45, <16 x float> %t44, <16 x float> splat (float 0x3FF0000000000000)
%t47 = fadd <16 x float> %t44, splat (float 0x3FF0000000000000)
%t48 = fdiv <16 x float> %t46, %t47
%t49 = fneg <16 x float> %t48
%t50 = fsub <16 x float> %t46, %t48
%t51 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t49, <16 x float> %t44, <16 x float> %t50)
%t52 = fsub <16 x float> splat (float 0x3FF0000000000000), %t48
%t53 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t51, <16 x float> %t52, <16 x float> %t48)
%t54 = fmul <16 x float> %t20, %t53
%t55 = bitcast <16 x float> %t54 to <16 x i32>
%t56 = add <16 x i32> %t55, splat (i32 32767)
%t57 = lshr <16 x i32> %t55, splat (i32 16)
%t58 = and <16 x i32> %t57, splat (i32 1)
%t59 = add <16 x i32> %t56, %t58
%t60 = fcmp uno <16 x float> %t54, %t54
%t61 = select <16 x i1> %t60, <16 x i32> splat (i32 2143289344), <16 x i32> %t59
%t62 = lshr <16 x i32> %t61, splat (i32 16)
%t63 = trunc <16 x i32> %t62 to <16 x i16>
%t64 = getelementptr i16, ptr %b1, i64 %t7
call void @llvm.masked.store.v16i16.p0(<16 x i16> %t63, ptr %t64, i32 2, <16 x i1> %t15)
%t65 = add nsw i64 %t7, 16
%t66 = icmp slt i64 %t65, %d0
br i1 %t66, label %loop5, label %exit6
exit6:
br label %done2
done2:
ret void
}
define void @silu(ptr %buffers, ptr %dims, i64 %begin, i64 %end, ptr %scratch) #0 {
entry:
%t1 = getelementptr ptr, ptr %buffers, i64 0
%t2 = load ptr, ptr %t1, align 8
%t3 = getelementptr ptr, ptr %buffers, i64 1
%t4 = load ptr, ptr %t3, align 8
%t5 = getelementptr i64, ptr %dims, i64 0
%t6 = load i64, ptr %t5, align 8
tail call void @silu.tasks(ptr %t2, ptr %t4, i64 %t6, i64 %begin, i64 %end, ptr %scratch)
ret void
}
attributes #0 = { nounwind "prefer-vector-width"="256" "min-legal-vector-width"="256" "target-cpu"="x86-64-v3" "target-features"="" }
!0 = !{}
!1 = !{!"branch_weights", i32 1, i32 100000}
