# syntax=docker/dockerfile:1
# The page and the workers in one image: `serve` unless another command of lanebus is given.
# Without LANEBUS_URL it runs its own server in /data, for one container: give that a named volume, `docker run -v lanebus:/data …`.
# docker-compose.yml shows the other way.

FROM python:3.13.9-slim-trixie AS build
WORKDIR /src
RUN python -m venv /opt/lanebus
ENV PATH=/opt/lanebus/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# The packages first, so that a change in the code does not install them again. Wheels only, each held to its hash.
COPY .ci/constraints.txt .ci/pinned .ci/
RUN python .ci/pinned build run > pinned.txt && pip install --require-hashes --only-binary :all: -r pinned.txt
COPY pyproject.toml README.md LICENSE ./
COPY lanebus lanebus
COPY bus bus
COPY handlers handlers
RUN pip install --no-deps --no-build-isolation . && pip uninstall --yes setuptools pip

FROM python:3.13.9-slim-trixie
RUN useradd --uid 10001 --create-home lanebus && install -d -m 0700 -o lanebus -g lanebus /data
COPY --from=build /opt/lanebus /opt/lanebus
ENV PATH=/opt/lanebus/bin:$PATH PYTHONUNBUFFERED=1 LANEBUS_DATA_DIR=/data
USER lanebus
WORKDIR /home/lanebus
EXPOSE 8420
ENTRYPOINT ["lanebus"]
# lanebus listens on 127.0.0.1 unless told otherwise; in a container that is out of reach, so this says it aloud.
# Publish the port to the host's own address: docker run -p 127.0.0.1:8420:8420 …
CMD ["serve", "--host", "0.0.0.0", "--port", "8420"]
