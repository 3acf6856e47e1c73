#!/bin/sh
# Installs what the tests need beyond Go, if this is Debian and we are root;
# otherwise says the one command that does.
set -eu
. "$(dirname "$0")/apt.sh"

have_postgres() {
	[ -n "${BELFRY_TEST_DATABASE_URL:-}" ] || command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

have_pgbouncer() {
	command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ]
}

if have_postgres && have_pgbouncer; then
	exit 0
fi
if can_install; then
	echo "installing postgresql and pgbouncer for the tests"
	if have_postgres; then limit="timeout 120"; else limit=; fi # only PgBouncer may be left out
	$limit apt-get update -q || have_postgres
	have_postgres || install_packages postgresql
	install_packages pgbouncer || echo "PgBouncer could not be installed: its tests will be left out"
	exit 0
fi
if have_postgres; then
	echo "PgBouncer is not installed: its tests will be left out (sudo apt-get install -y pgbouncer)"
	exit 0
fi
cat <<'TXT'
************************************************************************
PostgreSQL is not installed: every test that needs it will be LEFT OUT.
To run them all:   sudo apt-get install -y postgresql pgbouncer
or name a server:  BELFRY_TEST_DATABASE_URL=postgres://... make test
************************************************************************
TXT
