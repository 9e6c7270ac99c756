target triple = "x86_64-unknown-linux-gnu"
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare <16 x i16> @llvm.masked.load.v16i16.p0(ptr, i32, <16 x i1>, <16 x i16>)
declare <16 x float> @llvm.fabs.v16f32(<16 x float>)
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare void @llvm.masked.store.v16i16.p0(<16 x i16>, ptr, i32, <16 x i1>)
define internal void @silu.tasks(ptr noalias readonly %b0, ptr noalias %b1, i64 %d0, i64 %begin, i64 %end, ptr noalias %scratch) #0 {
entry:
%t4 = icmp slt i64 %begin, %end
br i1 %t4, label %enter1, label %exit3
enter1:
br label %loop2
loop2:
%t5 = phi i64 [ %begin, %enter1 ], [ %t69, %exit8 ]
br label %enter6
enter6:
br label %loop7
loop7:
%t9 = phi i64 [ 0, %enter6 ], [ %t67, %loop7 ]
%t10 = mul i64 %t9, -1
%t11 = add i64 %d0, %t10
%t12 = call i64 @llvm.smin.i64(i64 %t11, i64 16)
%t13 = call i64 @llvm.smax.i64(i64 %t12, i64 0)
%t14 = trunc i64 %t13 to i32
%t15 = insertelement <16 x i32> poison, i32 %t14, i64 0
%t16 = shufflevector <16 x i32> %t15, <16 x i32> poison, <16 x i32> zeroinitializer
%t17 = icmp slt <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %t16
%t18 = getelementptr i16, ptr %b0, i64 %t9
%t19 = call <16 x i16> @llvm.masked.load.v16i16.p0(ptr %t18, i32 2, <16 x i1> %t17, <16 x i16> zeroinitializer), !invariant.load !0
%t20 = zext <16 x i16> %t19 to <16 x i32>
%t21 = shl <16 x i32> %t20, splat (i32 16)
%t22 = bitcast <16 x i32> %t21 to <16 x float>
%t23 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %t22)
%t24 = fneg <16 x float> %t23
%t25 = fcmp ogt <16 x float> splat (float 0xC05A200000000000), %t24
%t26 = select <16 x i1> %t25, <16 x float> splat (float 0xC05A200000000000), <16 x float> %t24
%t27 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t26, <16 x float> splat (float 0x3FF7154760000000), <16 x float> splat (float 0x4168000000000000))
%t28 = fsub <16 x float> %t27, splat (float 0x4168000000000000)
%t29 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t28, <16 x float> splat (float 0xBFE62E4300000000), <16 x float> %t26)
%t30 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t28, <16 x float> splat (float 0x3E205C6100000000), <16 x float> %t29)
%t31 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F56A22540000000), <16 x float> %t30, <16 x float> splat (float 0x3F8123B020000000))
%t32 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t31, <16 x float> %t30, <16 x float> splat (float 0x3FA5558F80000000))
%t33 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t32, <16 x float> %t30, <16 x float> splat (float 0x3FC5554900000000))
%t34 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t33, <16 x float> %t30, <16 x float> splat (float 0x3FDFFFFFC0000000))
%t35 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t34, <16 x float> %t30, <16 x float> splat (float 0x3FF0000000000000))
%t36 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t35, <16 x float> %t30, <16 x float> splat (float 0x3FF0000000000000))
%t37 = fcmp olt <16 x float> %t28, splat (float 0xC05F000000000000)
%t38 = bitcast <16 x float> %t27 to <16 x i32>
%t39 = select <16 x i1> %t37, <16 x i32> splat (i32 1593835520), <16 x i32> splat (i32 1056964608)
%t40 = bitcast <16 x float> %t27 to <16 x i32>
%t41 = shl <16 x i32> %t40, splat (i32 23)
%t42 = add <16 x i32> %t41, %t39
%t43 = bitcast <16 x i32> %t42 to <16 x float>
%t44 = select <16 x i1> %t37, <16 x float> splat (float 0x3C00000000000000), <16 x float> splat (float 0x4000000000000000)
%t45 = fmul <16 x float> %t36, %t43
%t46 = fmul <16 x float> %t45, %t44
%t47 = fcmp olt <16 x float> %t22, splat (float 0x0000000000000000)
%t48 = select <16 x i1> %t47, <16 x float> %t46, <16 x float> splat (float 0x3FF0000000000000)
%t49 = fadd <16 x float> %t46, splat (float 0x3FF0000000000000)
%t50 = fdiv <16 x float> %t48, %t49
%t51 = fneg <16 x float> %t50
%t52 = fsub <16 x float> %t48, %t50
%t53 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t51, <16 x float> %t46, <16 x float> %t52)
%t54 = fsub <16 x float> splat (float 0x3FF0000000000000), %t50
%t55 = call <16 x float> @llvm.fma.v16f32(<16 x float> %t53, <16 x float> %t54, <16 x float> %t50)
%t56 = fmul <16 x float> %t22, %t55
%t57 = bitcast <16 x float> %t56 to <16 x i32>
%t58 = add <16 x i32> %t57, splat (i32 32767)
%t59 = lshr <16 x i32> %t57, splat (i32 16)
%t60 = and <16 x i32> %t59, splat (i32 1)
%t61 = add <16 x i32> %t58, %t60
%t62 = fcmp uno <16 x float> %t56, %t56
%t63 = select <16 x i1> %t62, <16 x i32> splat (i32 2143289344), <16 x i32> %t61
%t64 = lshr <16 x i32> %t63, splat (i32 16)
%t65 = trunc <16 x i32> %t64 to <16 x i16>
%t66 = getelementptr i16, ptr %b1, i64 %t9
call void @llvm.masked.store.v16i16.p0(<16 x i16> %t65, ptr %t66, i32 2, <16 x i1> %t17)
%t67 = add nsw i64 %t9, 16
%t68 = icmp slt i64 %t67, %d0
br i1 %t68, label %loop7, label %exit8
exit8:
%t69 = add nsw i64 %t5, 1
%t70 = icmp slt i64 %t69, %end
br i1 %t70, label %loop2, label %exit3
exit3:
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
call void @silu.tasks(ptr %t2, ptr %t4, i64 %t6, i64 %begin, i64 %end, ptr %scratch)
ret void
}
attributes #0 = { nounwind "prefer-vector-width"="256" "min-legal-vector-width"="256" "target-cpu"="x86-64-v3" "target-features"="" }
!0 = !{}
!1 = !{!"branch_weights", i32 1, i32 100000}
