# syntax=docker/dockerfile:1.7
# Images of the service. Targets: cpu (the default), gpu, and cpu-baked and gpu-baked with the
# bundle inside. Why this base and these stages: docs/decisions/031-images.md.
#
#   docker build --target cpu -t patamar:cpu .
#   docker build --target gpu -t patamar:gpu .
#   docker build --target cpu-baked --build-context bundle=build/quickstart/bundle -t patamar:banking77 .
#   docker run --rm -p 8000:8000 -v ./build/quickstart/bundle:/bundle:ro patamar:cpu

ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

# The wheel: the only thing that the sources are needed for.
FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY multi_exit multi_exit
COPY training training
COPY export export
COPY service service
COPY deploy deploy
COPY bench bench
COPY cli cli
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# What the wheel needs to serve, and no more: no torch, no transformers, no compiler.
FROM ${PYTHON_IMAGE} AS install-cpu
RUN python -m venv /opt/patamar
ENV PATH=/opt/patamar/bin:$PATH
# Dependencies first: they change less often than the sources, and stay in the build cache.
COPY deploy/docker/requirements-cpu.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --requirement /tmp/requirements.txt
COPY --from=wheel /wheels /wheels
# Without an index: whatever the pinned file forgot is an error here, not a surprise later, and
# patamar can only be the wheel made above.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --no-index --find-links /wheels "patamar[serve]" && pip check

# The same with a GPU's onnxruntime and exactly the CUDA libraries that it was built against.
FROM ${PYTHON_IMAGE} AS install-gpu
RUN python -m venv /opt/patamar
ENV PATH=/opt/patamar/bin:$PATH
COPY deploy/docker/requirements-gpu.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --requirement /tmp/requirements.txt
COPY --from=wheel /wheels /wheels
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --no-index --find-links /wheels "patamar[gpu]" && pip check

# What all images share: no root, no shell script, signals straight to the service.
FROM ${PYTHON_IMAGE} AS runtime
RUN groupadd --gid 10001 patamar \
    && useradd --uid 10001 --gid patamar --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin patamar
ENV PATH=/opt/patamar/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER 10001:10001
EXPOSE 8000
# SIGTERM: stop accepting, answer what was accepted, leave.
STOPSIGNAL SIGTERM
# Ready, not merely alive: bundle verified, warmed, golden examples right. urlopen raises on 503.
# The start period covers reading and warming a large bundle on a slow disk.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["patamar", "serve"]
CMD ["/bundle", "--host", "0.0.0.0", "--port", "8000"]

FROM runtime AS serve-cpu
COPY --from=install-cpu /opt/patamar /opt/patamar

FROM runtime AS gpu
COPY --from=install-gpu /opt/patamar /opt/patamar
# pip's CUDA libraries lie beside Python's packages, where the loader does not look by itself.
ENV LD_LIBRARY_PATH=/opt/patamar/lib/python3.11/site-packages/nvidia/cu13/lib:/opt/patamar/lib/python3.11/site-packages/nvidia/cudnn/lib \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PATAMAR_PROVIDER=cuda

# Empty, so that a bundle has to be named: --build-context bundle=FOLDER takes this stage's place.
FROM scratch AS bundle

# The digests are checked while building: a broken bundle makes no image.
FROM gpu AS gpu-baked
COPY --from=bundle . /bundle
RUN ["python", "-c", "from pathlib import Path; from multi_exit.bundle import load_bundle; load_bundle(Path('/bundle'))"]

FROM serve-cpu AS cpu-baked
COPY --from=bundle . /bundle
RUN ["python", "-c", "from pathlib import Path; from multi_exit.bundle import load_bundle; load_bundle(Path('/bundle'))"]

# Last, so that a build without --target makes it.
FROM serve-cpu AS cpu
