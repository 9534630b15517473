#!/bin/sh
# Writes .env for `docker compose`, with a new secret for each variable that requires one:
#   sh infra/docker/make-env.sh [file]
# An existing file is not changed, because its passwords are already stored in the volumes.
set -eu
umask 077
file=${1:-.env}
if [ -e "$file" ]; then
  echo "$file already exists and was not changed. Its passwords belong to the volumes of this installation." >&2
  exit 1
fi
# Hexadecimal, because passwords are also used in URLs.
secret() { od -An -v -tx1 -N24 /dev/urandom | tr -d ' \n'; }
{
  echo "# Secrets of this installation, created by infra/docker/make-env.sh. Keep them together with the volumes."
  echo "RUNLAKE_SECRET_KEY=$(secret)"
  echo "# The admin key of the first start."
  echo "RUNLAKE_BOOTSTRAP_API_KEY=rlk_$(secret)"
  echo "CLICKHOUSE_PASSWORD=$(secret)"
  echo "POSTGRES_PASSWORD=$(secret)"
  echo "REGISTRY_DATABASE_PASSWORD=$(secret)"
  echo "REDIS_PASSWORD=$(secret)"
  echo "S3_ACCESS_KEY=runlake"
  echo "S3_SECRET_KEY=$(secret)"
  echo "GRAFANA_ADMIN_PASSWORD=$(secret)"
  echo "GRAFANA_CLICKHOUSE_PASSWORD=$(secret)"
  echo "GRAFANA_DATABASE_PASSWORD=$(secret)"
} > "$file"
echo "Wrote $file. Next: docker compose up --build --wait" >&2
