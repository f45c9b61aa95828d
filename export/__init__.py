"""The export stage: a transformers model to ONNX files whose nodes are named after modules."""
