#!/bin/sh
# Installs what the peers need beyond Go and PostgreSQL: Redis for asynq, and the packages of graphile-worker. A peer whose
# needs cannot be installed is left out of the table.
set -eu
cd "$(dirname "$0")"
. ../../tools/apt.sh
limit="timeout 120"

if ! command -v redis-server >/dev/null 2>&1; then
	{ can_install && $limit apt-get update -q && install_packages redis-server; } ||
		echo "Redis could not be installed: asynq will be left out (sudo apt-get install -y redis-server)"
fi
installed=graphile/node_modules/.package-lock.json
if ! command -v npm >/dev/null 2>&1; then
	echo "npm is not installed: graphile-worker will be left out (sudo apt-get install -y nodejs npm)"
elif [ ! -e "$installed" ] || [ graphile/package-lock.json -nt "$installed" ]; then
	(cd graphile && $limit npm ci) ||
		echo "The packages of graphile-worker could not be installed: it will be left out (npm ci in bench/peers/graphile)"
fi
