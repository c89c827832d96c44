"""The spatial pyramid, one step per module: codebook -> pooling -> kernels."""
