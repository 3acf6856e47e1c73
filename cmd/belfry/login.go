package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/oidc"
)

// loginTimeout is how long a person may take to log in.
const loginTimeout = oidc.FlowTimeout

func loginCommand(f *connectionFlags) *cobra.Command {
	device := false
	cmd := &cobra.Command{
		Use: "login", Short: "Log in to a server with OpenID Connect",
		Long: `Log in to a server whose people log in with OpenID Connect. It prints an address, and opens it
in a browser on this machine. With --device, the browser may be on another one: you enter a
code there, if the issuer offers that.

The login is kept in the directory of the configuration, readable by you alone, and commands
use it unless they have an API key. It is prolonged as long as the issuer allows.`,
	}
	cmd.Flags().BoolVar(&device, "device", false, "log in with a browser on another machine")
	return f.add(f.command(cmd, func(c *cli, _ []string) error {
		s, err := f.settings()
		if err != nil {
			return err
		}
		login, err := c.Login(c.ctx)
		if err != nil {
			return err
		}
		if login.Issuer == "" {
			return fmt.Errorf("%s has no login with OpenID Connect: use an API key, see --key-file", s.Server)
		}
		ctx, cancel := context.WithTimeout(c.ctx, loginTimeout)
		defer cancel()
		start := oidc.LogInWithBrowser
		if device {
			start = oidc.LogInWithCode
		}
		token, err := start(ctx, login, func(address, code string) {
			if code != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "Open %s in a browser, and enter the code %s\n", escape(address), escape(code))
				return
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Log in at %s\n", escape(address))
			openBrowser(address)
		})
		if err != nil {
			return err
		}
		if err := editLogins(func(logins map[string]oidc.Token) { logins[loginKey(s.Server)] = token }); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "You are logged in to %s\n", escape(s.Server))
		return nil
	}))
}

func logoutCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "logout", Short: "Forget the login to a server"}
	return f.add(f.command(cmd, func(*cli, []string) error {
		s, err := f.settings()
		if err != nil {
			return err
		}
		return editLogins(func(logins map[string]oidc.Token) { delete(logins, loginKey(s.Server)) })
	}))
}

// openBrowser opens an address, if it can. The person has seen it.
func openBrowser(address string) {
	command := map[string]string{"darwin": "open", "linux": "xdg-open"}[runtime.GOOS]
	if command == "" || runtime.GOOS == "linux" && os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY") == "" || !strings.HasPrefix(address, "http") {
		return
	}
	if cmd := exec.Command(command, address); cmd.Start() == nil {
		go cmd.Wait()
	}
}

func loginKey(server string) string { return strings.TrimRight(server, "/") }

func loginsPath() string {
	if path := configPath(); path != "" {
		return filepath.Join(filepath.Dir(path), "logins.json")
	}
	return ""
}

// readLogins reads the logins by server.
func readLogins() (logins map[string]oidc.Token, err error) {
	logins = map[string]oidc.Token{}
	content, err := os.ReadFile(loginsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return logins, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &logins)
	}
	if err != nil {
		return nil, fmt.Errorf("read the logins: %w", err)
	}
	return logins, nil
}

// editLogins replaces the file, which nobody else can read, as a whole.
func editLogins(edit func(map[string]oidc.Token)) error {
	logins, err := readLogins()
	if err != nil {
		return err
	}
	edit(logins)
	if err := os.MkdirAll(filepath.Dir(loginsPath()), 0o700); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(loginsPath()), "logins-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	defer os.Remove(file.Name()) // which fails after the rename
	_, err = file.Write(belfry.MustJSON(logins))
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), loginsPath())
	}
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	return nil
}

// loginToken is the token of the login to a server, prolonged if it is about to expire; empty if
// there is none.
func loginToken(ctx context.Context, server string) (string, error) {
	logins, err := readLogins()
	token, ok := logins[loginKey(server)]
	if err != nil || !ok || time.Until(token.Expiry) > time.Minute {
		return token.IDToken, err
	}
	newer, err := token.Refresh(ctx)
	if err == nil {
		return newer.IDToken, editLogins(func(logins map[string]oidc.Token) { logins[loginKey(server)] = newer })
	}
	// Another command may have used the refresh token just now, which counts once.
	if logins, _ := readLogins(); logins[loginKey(server)].Expiry.After(token.Expiry) {
		return logins[loginKey(server)].IDToken, nil
	}
	if time.Until(token.Expiry) > 0 {
		return token.IDToken, nil
	}
	return "", exitError{fmt.Errorf("%w; log in again: belfry login --server %s", err, server), exitNotAllowed}
}
