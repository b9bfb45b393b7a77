"""Writes torch.onnx with the exporter of PyTorch 1.12.1, opset 13. Run it before make.py."""
import os

import torch

torch.manual_seed(1)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 4, 3, padding=1, bias=False), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 3),
).eval()
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch.onnx")
names = {"input_names": ["x"], "output_names": ["y"]}
torch.onnx.export(net, torch.zeros(1, 3, 5, 5), path, opset_version=13, do_constant_folding=False, **names)
