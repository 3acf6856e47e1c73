#!/bin/sh
# Counts what reviews of the structure talk about: lines and files of
# the product, files that name one job field, and lines for each operation of the API.
# Tests, test support and examples do not count.
set -eu
cd "$(dirname "$0")/.."
product() { git ls-files "$@" | grep '\.go$' | grep -v -e '_test\.go$' -e '^examples/' -e '^internal/pgtest/' -e '^internal/control/controltest/' -e '^internal/chaos/' -e '^internal/promtest/' -e '^internal/servertest/' -e "^internal/oidctest/" -e '^test/' -e '^internal/browsertest/' -e '^bench/' -e '^tools/'; }
lines() { product "$@" | xargs cat | wc -l; }
operations=$(git grep -h -o -E 'ID: "[a-z][A-Za-z]+", Method|id: "[a-z][A-Za-z]+", method|simple\("[a-z][A-Za-z]+"' -- 'internal/api/*.go' ':!*_test.go' | wc -l)
front=$(($(lines internal/api) + $(lines internal/control) + $(lines cmd/belfry) + $(lines client)))
echo "product lines                         $(lines .)"
echo "product files                         $(product . | wc -l)"
echo "files that name the field max_queued  $(product . | xargs grep -l -i -E 'max_?queued|max-queued' | wc -l)"
echo "operations of the API                 $operations"
echo "api + control + cmd + client          $front lines, $((front / operations)) an operation"
for room in validate explain schema jsontext openapi secret sanitize; do
	[ -d "internal/$room" ] && echo "  internal/$room $(lines internal/$room)"
done
exit 0
