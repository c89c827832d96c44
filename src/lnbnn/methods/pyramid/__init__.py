"""The spatial pyramid, one hop a module: codebook -> coding -> pooling -> kernels."""
