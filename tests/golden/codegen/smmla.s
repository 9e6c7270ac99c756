ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
add	x25, x25, #16
prfum	pldl1keep, [x26, #-128]
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
cmp	x25, #96
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
prfum	pldl1keep, [x26, #-64]
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
prfm	pldl1keep, [x26]
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
prfm	pldl1keep, [x26, #64]
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
add	x26, x26, #256
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v30.4s, v8.16b, v12.16b
smmla	v20.4s, v9.16b, v12.16b
smmla	v6.4s, v10.16b, v12.16b
smmla	v0.4s, v11.16b, v12.16b
smmla	v31.4s, v8.16b, v13.16b
smmla	v23.4s, v9.16b, v13.16b
smmla	v17.4s, v10.16b, v13.16b
smmla	v3.4s, v11.16b, v13.16b
smmla	v28.4s, v8.16b, v14.16b
smmla	v21.4s, v9.16b, v14.16b
smmla	v7.4s, v10.16b, v14.16b
smmla	v1.4s, v11.16b, v14.16b
ld1	{ v12.16b, v13.16b, v14.16b }, [x28], #48
smmla	v29.4s, v8.16b, v12.16b
smmla	v24.4s, v9.16b, v12.16b
smmla	v18.4s, v10.16b, v12.16b
smmla	v4.4s, v11.16b, v12.16b
smmla	v26.4s, v8.16b, v13.16b
smmla	v22.4s, v9.16b, v13.16b
smmla	v16.4s, v10.16b, v13.16b
smmla	v2.4s, v11.16b, v13.16b
smmla	v27.4s, v8.16b, v14.16b
smmla	v25.4s, v9.16b, v14.16b
smmla	v19.4s, v10.16b, v14.16b
smmla	v5.4s, v11.16b, v14.16b
b.lt	.LBB0_9
