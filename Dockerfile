# An image with lnbnn and its demo. NOT BUILT by the project's tests, which have no Docker: please report what fails.
#
#   docker build -t lnbnn .
#   docker run --rm -v "$PWD:/data" lnbnn fit photos model
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
COPY requirements.lock /tmp/requirements.lock
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir --constraint /tmp/requirements.lock "$(ls /tmp/wheels/lnbnn-*.whl)[demo]" \
    && rm -rf /tmp/wheels /tmp/requirements.lock \
    && useradd --create-home user
USER user
# Compile once, so that the first command of a container does not.
RUN cd /tmp && lnbnn demo --output /tmp/demo && rm -rf /tmp/demo
WORKDIR /data
ENTRYPOINT ["lnbnn"]
CMD ["--help"]
