# Functions for scripts that install what a developer lacks.

# can_install reports whether packages can be installed: this is Debian and we are root.
can_install() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1
}

# install_packages installs packages, under the command in $limit (such as "timeout 120") if there is one. Packages of
# servers would start them; nothing here needs that.
install_packages() {
	created=
	if [ ! -e /usr/sbin/policy-rc.d ]; then
		printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
		chmod +x /usr/sbin/policy-rc.d
		created=1
	fi
	status=0
	DEBIAN_FRONTEND=noninteractive ${limit:-} apt-get install -q -y --no-install-recommends "$@" || status=$?
	if [ -n "$created" ]; then rm -f /usr/sbin/policy-rc.d; fi
	return "$status"
}
