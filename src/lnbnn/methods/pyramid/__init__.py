"""The spatial pyramid, one hop a module: codebook -> pooling -> kernels."""
