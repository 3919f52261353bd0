"""What onnxruntime-genai drives: a model with its interface, and genai_config.json beside it."""
