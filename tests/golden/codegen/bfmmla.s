ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
add	x25, x25, #16
prfum	pldl1keep, [x26, #-128]
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
cmp	x25, #192
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
prfum	pldl1keep, [x26, #-64]
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
prfm	pldl1keep, [x26]
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
prfm	pldl1keep, [x26, #64]
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
add	x26, x26, #256
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
ld1	{ v8.2d, v9.2d, v10.2d, v11.2d }, [x27], #64
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v30.4s, v8.8h, v12.8h
bfmmla	v20.4s, v9.8h, v12.8h
bfmmla	v6.4s, v10.8h, v12.8h
bfmmla	v0.4s, v11.8h, v12.8h
bfmmla	v31.4s, v8.8h, v13.8h
bfmmla	v23.4s, v9.8h, v13.8h
bfmmla	v17.4s, v10.8h, v13.8h
bfmmla	v3.4s, v11.8h, v13.8h
bfmmla	v28.4s, v8.8h, v14.8h
bfmmla	v21.4s, v9.8h, v14.8h
bfmmla	v7.4s, v10.8h, v14.8h
bfmmla	v1.4s, v11.8h, v14.8h
ld1	{ v12.8h, v13.8h, v14.8h }, [x28], #48
bfmmla	v29.4s, v8.8h, v12.8h
bfmmla	v24.4s, v9.8h, v12.8h
bfmmla	v18.4s, v10.8h, v12.8h
bfmmla	v4.4s, v11.8h, v12.8h
bfmmla	v26.4s, v8.8h, v13.8h
bfmmla	v22.4s, v9.8h, v13.8h
bfmmla	v16.4s, v10.8h, v13.8h
bfmmla	v2.4s, v11.8h, v13.8h
bfmmla	v27.4s, v8.8h, v14.8h
bfmmla	v25.4s, v9.8h, v14.8h
bfmmla	v19.4s, v10.8h, v14.8h
bfmmla	v5.4s, v11.8h, v14.8h
b.lt	.LBB0_9
