#!/bin/sh
# Installs what the tests need beyond Go, if this is Debian and we are root;
# otherwise says the one command that does.
set -eu
. "$(dirname "$0")/apt.sh"

have_postgres() {
	[ -n "${BELFRY_TEST_DATABASE_URL:-}" ] || command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

have() {
	case $1 in
	pgbouncer) command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ] ;;
	prometheus) command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1 ;;
	rabbitmq-server) [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] ;;
	etcd-server) command -v etcd >/dev/null 2>&1 ;;
	zookeeperd) [ -e /usr/share/java/zookeeper.jar ] ;;
	bubblewrap) command -v bwrap >/dev/null 2>&1 ;;
	php-cli) command -v php >/dev/null 2>&1 ;;
	nodejs) command -v node >/dev/null 2>&1 ;;
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac
}

# Tests of these may be left out.
optional="pgbouncer prometheus chromium redis-server rabbitmq-server nats-server etcd-server zookeeperd bubblewrap nodejs npm python3 php-cli"

missing=
for package in $optional; do
	have "$package" || missing="$missing $package"
done
if have_postgres && [ -z "$missing" ]; then
	exit 0
fi
if can_install; then
	echo "installing what the tests need:$(have_postgres || echo " postgresql")$missing"
	if have_postgres; then limit="timeout 120"; else limit=; fi # only the others may be left out
	$limit apt-get update -q || have_postgres
	have_postgres || install_packages postgresql
	for package in $missing; do
		limit="timeout 300" install_packages "$package" || echo "$package could not be installed: its tests will be left out"
	done
	exit 0
fi
if have_postgres; then
	echo "Not installed:$missing. Their tests will be left out (sudo apt-get install -y$missing)"
	exit 0
fi
cat <<TXT
************************************************************************
PostgreSQL is not installed: every test that needs it will be LEFT OUT.
To run them all:   sudo apt-get install -y postgresql $optional
or name a server:  BELFRY_TEST_DATABASE_URL=postgres://... make test
************************************************************************
TXT
