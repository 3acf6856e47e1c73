#!/bin/sh
# Installs what the tests need beyond Go, if this is Debian and we are root;
# otherwise says the one command that does.
set -eu

have_postgres() {
	[ -n "${BELFRY_TEST_DATABASE_URL:-}" ] || command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

if have_postgres; then
	exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	echo "installing postgresql for the tests"
	# The package would start a server of its own; nothing here needs it.
	created=
	if [ ! -e /usr/sbin/policy-rc.d ]; then
		printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
		chmod +x /usr/sbin/policy-rc.d
		created=1
	fi
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends postgresql
	if [ -n "$created" ]; then rm -f /usr/sbin/policy-rc.d; fi
	exit 0
fi
cat <<'TXT'
************************************************************************
PostgreSQL is not installed: every test that needs it will be LEFT OUT.
To run them all:   sudo apt-get install -y postgresql
or name a server:  BELFRY_TEST_DATABASE_URL=postgres://... make test
************************************************************************
TXT
