# The fleet's one image: API, workers, beat and Flower. docs/operating/kubernetes.md says how a workspace gets into it.
#
#   docker build -t archmax-fleet:0.1.0 .

# by version; to pin by digest as well, build with --build-arg PYTHON=3.11.14-slim-bookworm@sha256:<yours>
ARG PYTHON=3.11.14-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
RUN python -m venv /opt/archmax
# the locked versions first: they change less often than the code
COPY requirements.image.lock ./
RUN /opt/archmax/bin/pip install --require-hashes --requirement requirements.image.lock
COPY pyproject.toml LICENSE README.md CHANGELOG.md ./
COPY core core
COPY sandbox sandbox
COPY storage storage
COPY engine engine
COPY worker worker
COPY api api
COPY archmax archmax
RUN /opt/archmax/bin/pip wheel --no-deps --wheel-dir /dist . \
    && /opt/archmax/bin/pip install --no-deps /dist/*.whl \
    && /opt/archmax/bin/pip check \
    && /opt/archmax/bin/python -m compileall -q /opt/archmax

FROM python:${PYTHON}
# an init that reaps, and passes signals to the one process below it
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 archmax \
    && useradd --uid 10001 --gid archmax --no-create-home --home-dir /tmp --shell /usr/sbin/nologin archmax \
    && install --directory --owner=archmax --group=archmax /workspace /var/lib/archmax /run/archmax
COPY --from=build /opt/archmax /opt/archmax
ENV PATH=/opt/archmax/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    ARCHMAX_ROOT=/workspace \
    ARCHMAX_LOG_FORMAT=json
WORKDIR /workspace
USER 10001:10001
ENTRYPOINT ["tini", "--", "archmax"]
CMD ["--help"]
