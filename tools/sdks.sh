#!/bin/sh
# Tests the SDKs against a real server, side by side. One that cannot be tested on this machine is left out with a line that says so.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
${GO:-go} build -o .tools/belfry ./cmd/belfry
export BELFRY_TEST_BINARY="$root/.tools/belfry"

left_out() {
	echo "THE SDK IN $1 IS NOT TESTED: $2"
}

test_python() {
	if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
		left_out PYTHON "it needs Python 3.11 or newer (sudo apt-get install -y python3)"
		return 0
	fi
	(cd sdk/python && PYTHONDONTWRITEBYTECODE=1 python3 -m unittest)
}

test_typescript() {
	if ! command -v npm >/dev/null 2>&1 || ! node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null; then
		left_out TYPESCRIPT "it needs Node.js 18 or newer, with npm (sudo apt-get install -y nodejs npm)"
		return 0
	fi
	cd sdk/typescript
	installed=node_modules/.package-lock.json
	if [ ! -e "$installed" ] || [ package-lock.json -nt "$installed" ]; then
		if ! timeout 120 npm ci; then
			left_out TYPESCRIPT "the compiler could not be installed (npm ci in sdk/typescript)"
			return 0
		fi
	fi
	npm test --silent
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
test_python >"$log" 2>&1 &
python=$!
status=0
(test_typescript) || status=$?
wait "$python" || status=$?
cat "$log"
exit "$status"
