# viewkit with the pinned versions of constraints.txt, run by a user without rights.
#
#   docker build -t viewkit .                                        torch as its index has it for Linux: with CUDA
#   docker build -t viewkit --build-arg TORCH_INDEX=URL .            torch and torchvision from another index, e.g. for CPUs
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" viewkit status dataset
#   docker run --rm --gpus all --shm-size 8g -v "$PWD:/data" viewkit pretrain dataset

FROM python:3.11-slim AS build
ARG TORCH_INDEX=""
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/viewkit
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY constraints.txt ./
RUN /opt/viewkit/bin/pip install --constraint constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch torchvision
COPY pyproject.toml setup.py README.md LICENSE ./
COPY cli cli
COPY pipelines pipelines
COPY shards shards
RUN /opt/viewkit/bin/pip install --constraint constraints.txt .

FROM python:3.11-slim
COPY --from=build /opt/viewkit /opt/viewkit
RUN useradd --create-home --uid 1000 viewkit && install --directory --owner viewkit /data
ENV PATH=/opt/viewkit/bin:$PATH
USER viewkit
WORKDIR /data
ENTRYPOINT ["viewkit"]
CMD ["--help"]
