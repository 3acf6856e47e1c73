package target

import (
	"net/netip"
	"strings"
	"testing"
)

func TestWarningOfATargetThatIsNotAllowed(t *testing.T) {
	guards := map[string]*Guard{
		"strict": NewGuard(false, nil),
		"open":   NewGuard(true, nil),
		"some":   NewGuard(false, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8")}),
	}
	for _, tt := range []struct{ guard, payload, flag string }{
		{"strict", `{"url": "http://127.0.0.1:7070/livez"}`, "127.0.0.1"},
		{"strict", `{"url": "http://localhost:7070/livez"}`, "127.0.0.1,::1"},
		{"strict", `{"url": "http://LocalHost"}`, "127.0.0.1,::1"},
		{"strict", `{"url": "https://[::1]:8443/"}`, "::1"},
		{"strict", `{"url": "https://[::ffff:10.1.2.3]/"}`, "10.1.2.3"},
		{"strict", `{"url": "http://[fe80::1%25eth0]/"}`, "fe80::1"},
		{"strict", `{"url": "http://169.254.169.254/latest"}`, "169.254.169.254"},
		{"open", `{"url": "http://169.254.169.254/latest"}`, "169.254.169.254"},
		{"some", `{"url": "http://127.0.0.2/"}`, "127.0.0.2"},
		{"some", `{"url": "http://[::1]/"}`, "::1"},

		{"strict", `{"url": "http://93.184.215.14/"}`, ""},
		{"strict", `{"url": "http://intranet/"}`, ""}, // is not looked up
		{"strict", `{"url": "http://127.0.0.1.example.com/"}`, ""},
		{"open", `{"url": "http://localhost/"}`, ""},
		{"some", `{"url": "http://localhost/"}`, ""},
		{"some", `{"url": "http://10.1.2.3/"}`, ""},
		{"strict", `{"customer": 4711}`, ""},
		{"strict", `{"url": 5}`, ""},
		{"strict", `{"url": "%"}`, ""},
		{"strict", `[1]`, ""},
		{"strict", ``, ""},
	} {
		got := guards[tt.guard].Warning([]byte(tt.payload))
		if tt.flag == "" && got != "" || tt.flag != "" && !strings.HasSuffix(got, "start the nodes with --allow-target "+tt.flag) {
			t.Errorf("%s, %s: got %q, want the flag %q", tt.guard, tt.payload, got, tt.flag)
		}
	}
}
