package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// cluster creates databases on one server: its own, or an external one.
type cluster struct {
	once   sync.Once
	err    error
	server *Server  // nil if the server is external
	base   *url.URL // of a database that always exists
	prefix string   // of the names of databases: other processes may use the same server
	count  atomic.Int64

	mu        sync.Mutex // guards the field below
	templates map[uintptr]*template
}

// template is a database to copy, created on first use.
type template struct {
	once sync.Once
	name string
	err  error
}

// start finds or starts the server, once.
func (c *cluster) start() error {
	c.once.Do(func() {
		c.prefix = "belfry_test_" + token()
		address := os.Getenv(envURL)
		if address == "" {
			bin, err := installed()
			if err == nil {
				c.server, err = newServer(bin, fastDir(), fast...)
			}
			if err != nil {
				c.err = err
				return
			}
			address = c.server.URL()
		}
		if c.base, c.err = parseURL(address); c.err == nil {
			c.err = c.checkVersion()
		}
	})
	return c.err
}

// checkVersion checks that Belfry supports the version of the server.
func (c *cluster) checkVersion() error {
	return c.admin(func(ctx context.Context, conn *pgx.Conn) error {
		var text string
		if err := conn.QueryRow(ctx, "SHOW server_version_num").Scan(&text); err != nil {
			return fmt.Errorf("read the version of PostgreSQL: %w", err)
		}
		if number, err := strconv.Atoi(text); err != nil || number < minMajor*10000 {
			return fmt.Errorf("PostgreSQL %d or newer is needed, the server says %s", minMajor, text)
		}
		return nil
	})
}

// create makes a database and returns its name.
func (c *cluster) create(migrate func(context.Context, string) error) (string, error) {
	name := fmt.Sprintf("%s_%d", c.prefix, c.count.Add(1))
	if migrate == nil {
		return name, c.exec("CREATE DATABASE " + name + " TEMPLATE template0")
	}
	t := c.template(migrate)
	t.once.Do(func() { t.err = c.build(t.name, migrate) })
	if t.err != nil {
		return "", t.err
	}
	return name, c.exec("CREATE DATABASE " + name + " TEMPLATE " + t.name + " STRATEGY wal_log")
}

// template returns the template of migrate, which may not be built yet.
func (c *cluster) template(migrate func(context.Context, string) error) *template {
	c.mu.Lock()
	defer c.mu.Unlock()
	code := reflect.ValueOf(migrate).Pointer()
	t, ok := c.templates[code]
	if !ok {
		t = &template{name: fmt.Sprintf("%s_template_%d", c.prefix, len(c.templates))}
		if c.templates == nil {
			c.templates = map[uintptr]*template{}
		}
		c.templates[code] = t
	}
	return t
}

// build builds the template and forbids connections to it: a database in use cannot be copied.
func (c *cluster) build(name string, migrate func(context.Context, string) error) error {
	if err := c.exec("CREATE DATABASE " + name + " TEMPLATE template0"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := migrate(ctx, c.url(name)); err != nil {
		return fmt.Errorf("migrate the template for tests: %w", err)
	}
	return c.exec("ALTER DATABASE " + name + " WITH ALLOW_CONNECTIONS false")
}

// drop removes a database, whoever is connected to it.
func (c *cluster) drop(name string) error {
	return c.exec("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)")
}

// stop ends the server, or drops the templates on an external one.
func (c *cluster) stop() error {
	if c.server != nil {
		return c.server.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, t := range c.templates {
		errs = append(errs, c.drop(t.name))
	}
	clear(c.templates)
	return errors.Join(errs...)
}

// url returns the address of one of the server's databases.
func (c *cluster) url(database string) string {
	u := *c.base
	u.Path = "/" + database
	return u.String()
}

func (c *cluster) exec(sql string) error {
	return c.admin(func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		return nil
	})
}

// admin calls f with a new connection, so that parallel tests do not wait for each other.
func (c *cluster) admin(f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.base.String())
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL for tests: %w", err)
	}
	defer conn.Close(ctx)
	return f(ctx, conn)
}

// parseURL accepts an address only in the form of a URL, since parts of it will be replaced.
func parseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") || u.Query().Has("dbname") {
		return nil, errors.New("read the address of PostgreSQL: it must have the form postgres://user:password@host:port/database")
	}
	return u, nil
}

// token returns eight random characters that are allowed in a name.
func token() string {
	var b [4]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
