"""The console command ``onnx-iron``: one module a subcommand."""
