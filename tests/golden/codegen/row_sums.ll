target triple = "x86_64-unknown-linux-gnu"
define internal void @row_sums.tasks(ptr noalias readonly %b0, ptr noalias %b1, i64 %d0, i64 %d1, i64 %begin, i64 %end, ptr noalias %scratch) #0 {
entry:
%t4 = icmp slt i64 %begin, %end
br i1 %t4, label %enter1, label %exit3
enter1:
%t6 = ashr i64 %d1, 4
br label %loop2
loop2:
%t5 = phi i64 [ %begin, %enter1 ], [ %t35, %exit9 ]
%t10 = icmp slt i64 0, %t6
br i1 %t10, label %enter7, label %exit9
enter7:
%t13 = mul i64 %t5, %d1
%t14 = getelementptr float, ptr %b0, i64 %t13
br label %loop8
loop8:
%t11 = phi i64 [ 0, %enter7 ], [ %t19, %loop8 ]
%t12 = phi <16 x float> [ splat (float 0x0000000000000000), %enter7 ], [ %t18, %loop8 ]
%t15 = mul i64 %t11, 16
%t16 = getelementptr float, ptr %t14, i64 %t15
%t17 = load <16 x float>, ptr %t16, align 4, !invariant.load !0
%t18 = fadd <16 x float> %t12, %t17
%t19 = add nsw i64 %t11, 1
%t20 = icmp slt i64 %t19, %t6
br i1 %t20, label %loop8, label %exit9
exit9:
%t21 = phi <16 x float> [ splat (float 0x0000000000000000), %loop2 ], [ %t18, %loop8 ]
%t22 = shufflevector <16 x float> %t21, <16 x float> %t21, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
%t23 = shufflevector <16 x float> %t21, <16 x float> %t21, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
%t24 = fadd <8 x float> %t22, %t23
%t25 = shufflevector <8 x float> %t24, <8 x float> %t24, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
%t26 = shufflevector <8 x float> %t24, <8 x float> %t24, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
%t27 = fadd <4 x float> %t25, %t26
%t28 = shufflevector <4 x float> %t27, <4 x float> %t27, <2 x i32> <i32 0, i32 1>
%t29 = shufflevector <4 x float> %t27, <4 x float> %t27, <2 x i32> <i32 2, i32 3>
%t30 = fadd <2 x float> %t28, %t29
%t31 = extractelement <2 x float> %t30, i64 0
%t32 = extractelement <2 x float> %t30, i64 1
%t33 = fadd float %t31, %t32
%t34 = getelementptr float, ptr %b1, i64 %t5
store float %t33, ptr %t34, align 4
%t35 = add nsw i64 %t5, 1
%t36 = icmp slt i64 %t35, %end
br i1 %t36, label %loop2, label %exit3
exit3:
ret void
}
define void @row_sums(ptr %buffers, ptr %dims, i64 %begin, i64 %end, ptr %scratch) #0 {
entry:
%t1 = getelementptr ptr, ptr %buffers, i64 0
%t2 = load ptr, ptr %t1, align 8
%t3 = getelementptr ptr, ptr %buffers, i64 1
%t4 = load ptr, ptr %t3, align 8
%t5 = getelementptr i64, ptr %dims, i64 0
%t6 = load i64, ptr %t5, align 8
%t7 = getelementptr i64, ptr %dims, i64 1
%t8 = load i64, ptr %t7, align 8
tail call void @row_sums.tasks(ptr %t2, ptr %t4, i64 %t6, i64 %t8, i64 %begin, i64 %end, ptr %scratch)
ret void
}
attributes #0 = { nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "target-cpu"="x86-64-v4" "target-features"="" }
!0 = !{}
!1 = !{!"branch_weights", i32 1, i32 100000}
