# The image in which `layerline job slurm --container-image` trains: PyTorch, NCCL, nsys and ncu as
# NVIDIA builds them. docs/training/jobs.md says how it becomes an Enroot image.
ARG BASE=nvcr.io/nvidia/pytorch:25.10-py3
FROM ${BASE}
WORKDIR /opt/layerline
COPY . .
# The image's own torch, numpy and transformers stay what they are: NVIDIA built them together.
RUN pip list --format=freeze | grep -iE '^(torch|numpy|triton)==' > /tmp/constraints.txt \
    && pip install --no-cache-dir -c /tmp/constraints.txt . 'transformers>=5.0' \
    && layerline doctor
WORKDIR /workspace
