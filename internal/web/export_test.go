package web

import "net/http"

// RoutesOf lists the patterns and permissions of a handler that New made.
func RoutesOf(h http.Handler) (patterns, permissions []string) {
	for _, r := range h.(*server).routes() {
		patterns, permissions = append(patterns, r.pattern), append(permissions, string(r.permission))
	}
	return patterns, permissions
}
