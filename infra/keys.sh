#!/usr/bin/env bash
# Make the keys of a server or a cluster, once: files of NAME=value that their owner alone can read. Keys that are there are kept.
# Usage: infra/keys.sh [FOLDER]    (default infra/secrets; R3L_HOST: the name that browsers use, default this machine's)
# Put a certificate of your own as tls.crt and tls.key into the folder first, or one signed by itself is made.
set -euo pipefail
umask 077
folder="${1:-$(dirname "$0")/secrets}"
host="${R3L_HOST:-$(hostname -f)}"
if [ -e "$folder/engine.env" ]; then echo "$folder: the keys are there, nothing is made"; exit 0; fi
mkdir -p "$folder"
key() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
write() { printf '%s\n' "${@:2}" > "$folder/$1"; }

database="$(key)" prefect="r3l:$(key)" access="$(key)" secret="$(key)"
write postgres.env "POSTGRES_PASSWORD=$database"
write prefect-server.env "PREFECT_SERVER_DATABASE_PASSWORD=$database" "PREFECT_SERVER_API_AUTH_STRING=$prefect"
write prefect-client.env "PREFECT_API_AUTH_STRING=$prefect"
write objects-root.env "ROOT_ACCESS_KEY=$access" "ROOT_SECRET_KEY=$secret"
write objects.env "AWS_ACCESS_KEY_ID=$access" "AWS_SECRET_ACCESS_KEY=$secret"
write audit.env "R3L_AUDIT_KEY=$(key)"
if [ ! -e "$folder/tls.key" ]; then
  openssl req -x509 -newkey rsa:3072 -nodes -days 825 -subj "/CN=$host" -addext "subjectAltName=DNS:$host,DNS:localhost,IP:127.0.0.1" \
    -keyout "$folder/tls.key" -out "$folder/tls.crt" 2>/dev/null
fi
if [ "$folder" -ef "$(dirname "$0")/secrets" ]; then  # what compose.yaml reads beside it
  owner="$(id -u)"
  if [ "$owner" = 0 ]; then owner=10001; chown "$owner" "$folder/tls.key" "$folder/tls.crt"; chmod 711 "$folder"; fi
  printf 'R3L_UID=%s\nR3L_HOST=%s\n' "$owner" "$host" > "$(dirname "$0")/.env"
fi
write engine.env "R3L_ENGINE_KEY=$(key)"
echo "$folder: keys for $host are made; the password of Prefect and of the audit page are in prefect-client.env and audit.env"
