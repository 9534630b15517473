#!/bin/sh
# Writes .env, which `docker compose` reads, with a new secret for each variable that has to have one:
#   sh infra/docker/make-env.sh [file]
# A file that exists is left as it is: its passwords are in the volumes already.
set -eu
umask 077
file=${1:-.env}
if [ -e "$file" ]; then
  echo "$file exists already: nothing was changed. Its passwords belong to the volumes of this installation." >&2
  exit 1
fi
# Hexadecimal, because passwords stand in addresses too.
secret() { od -An -v -tx1 -N24 /dev/urandom | tr -d ' \n'; }
{
  echo "# Secrets of this installation, made by infra/docker/make-env.sh. Keep them with the volumes that they open."
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
