package node

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/belfry-sh/belfry/internal/oidc"
	"github.com/belfry-sh/belfry/internal/web"
)

// OIDC is how people log in with OpenID Connect.
type OIDC struct {
	Issuer           string // empty: they use API keys
	ClientID         string
	ClientSecretFile string
	CLIClientID      string   // of the command line; empty: the same client
	Roles            []string // rules, as oidc.ParseRules reads them
}

func (c Config) checkOIDC(invalid func(field, format string, args ...any)) {
	o := c.OIDC
	if o.Issuer == "" {
		if o.ClientID != "" || len(o.Roles) > 0 {
			invalid("--oidc-issuer", "is missing: the address of the issuer")
		}
		return
	}
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())) {
		invalid("--oidc-issuer", "%q is not an https:// address without ? and #", o.Issuer)
	}
	if o.ClientID == "" {
		invalid("--oidc-client-id", "is missing: the id of the client that is registered at the issuer")
	}
	if c.PublicURL == "" {
		invalid("--public-url", "is missing: the issuer sends people back to it")
	}
	if rules, err := oidc.ParseRules(o.Roles); err != nil {
		invalid("--oidc-role", "%s", err)
	} else if len(rules) == 0 {
		invalid("--oidc-role", "is missing: without a rule nobody gets in; give %s", oidc.RuleForm)
	}
}

// openOIDC lets people in beside those who have API keys. The issuer need not answer yet.
func (n *Node) openOIDC() error {
	o := n.config.OIDC
	if o.Issuer == "" {
		return nil
	}
	rules, err := oidc.ParseRules(o.Roles)
	if err != nil {
		return err
	}
	secret := ""
	if o.ClientSecretFile != "" {
		content, err := os.ReadFile(o.ClientSecretFile)
		if secret = strings.TrimSpace(string(content)); err == nil && secret == "" {
			err = fmt.Errorf("%s is empty", o.ClientSecretFile)
		}
		if err != nil {
			return fmt.Errorf("--oidc-client-secret-file: %w", err)
		}
	}
	n.oidc = oidc.New(oidc.Options{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: secret, CLIClientID: o.CLIClientID, Rules: rules, Log: n.log,
		RedirectURL: strings.TrimRight(n.config.PublicURL, "/") + web.CallbackPath,
	})
	return nil
}
