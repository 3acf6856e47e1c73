package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// mailServer is the mail server that the URL of a channel names.
type mailServer struct {
	host, port     string
	implicitTLS    bool // smtps
	withoutTLS     bool // ?tls=off
	user, password string
}

// parseMailServer reads the URL of a mail server. The error follows the name of the field,
// and does not repeat the URL, which has a password.
func parseMailServer(text string) (m mailServer, err error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.TrimSpace(text) != text:
		return m, errors.New("is not a valid URL; for example smtp://user:password@mail.example.com:587. Write characters such as @, / and # of a password as %40, %2F and %23")
	case u.Scheme != "smtp" && u.Scheme != "smtps":
		return m, errors.New("must begin with smtp:// (STARTTLS) or smtps:// (TLS from the start)")
	case u.Hostname() == "":
		return m, errors.New("has no host")
	case strings.Trim(u.Path, "/") != "" || u.Fragment != "":
		return m, errors.New("must not have a path; for example smtp://user:password@mail.example.com:587")
	}
	m = mailServer{host: u.Hostname(), port: cmp.Or(u.Port(), map[string]string{"smtp": "587", "smtps": "465"}[u.Scheme]), implicitTLS: u.Scheme == "smtps"}
	if n, err := strconv.Atoi(m.port); err != nil || n < 1 || n > 65535 {
		return m, errors.New("has a port that is not between 1 and 65535")
	}
	query, err := url.ParseQuery(u.RawQuery)
	m.withoutTLS = query.Get("tls") == "off" && !m.implicitTLS
	if err != nil || len(query) > 1 || len(query) == 1 && !m.withoutTLS {
		return m, errors.New("has a parameter that is not known; the only one is tls=off, for smtp://")
	}
	m.user = u.User.Username()
	m.password, _ = u.User.Password()
	if (m.user == "") != (m.password == "") {
		return m, errors.New("has a user without a password, or a password without a user")
	}
	if m.withoutTLS && m.user != "" && !isLoopback(m.host) {
		return m, errors.New("has a password and tls=off; a password is not sent to another machine in clear, remove one of them")
	}
	return m, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// email sends the alert through a mail server. Recipients that the server refuses do not
// keep the others from getting it: the result is an error that says so.
func (s *Sender) email(ctx context.Context, c belfry.Channel, a belfry.Alert) error {
	server, err := parseMailServer(c.URL)
	if err != nil {
		return &Error{Message: "the url of the channel " + err.Error(), Permanent: true}
	}
	from, err := mail.ParseAddress(c.From)
	if err != nil {
		return &Error{Message: "the sender of the channel is not an address", Permanent: true}
	}
	to := make([]*mail.Address, len(c.To))
	for i := range to {
		if to[i], err = mail.ParseAddress(c.To[i]); err != nil {
			return &Error{Message: "a recipient of the channel is not an address", Permanent: true}
		}
	}
	client, err := s.connect(ctx, server)
	if err != nil {
		return smtpError(server.host, err)
	}
	defer client.Close()
	if err := client.Mail(from.Address); err != nil {
		return smtpError(server.host, err)
	}
	var refused []*Error
	for _, recipient := range to {
		if err := client.Rcpt(recipient.Address); err != nil {
			e := smtpError(server.host, err)
			e.Message = "recipient " + recipient.Address + ": " + e.Message
			refused = append(refused, e)
		}
	}
	if len(refused) == len(to) {
		return refused[max(0, slices.IndexFunc(refused, func(e *Error) bool { return !e.Permanent }))]
	}
	body, err := client.Data()
	if err == nil {
		if _, err = body.Write(mailMessage(a, from, to, time.Now())); err == nil {
			err = body.Close()
		}
	}
	if err != nil {
		return smtpError(server.host, err)
	}
	_ = client.Quit() // the server has the message
	if len(refused) > 0 {
		return &Error{Message: fmt.Sprintf("sent to %d of %d recipients: %s", len(to)-len(refused), len(to), refused[0]), Permanent: true, Sent: true}
	}
	return nil
}

// connect opens a session that is encrypted, unless the server is on this machine or the URL
// says otherwise, and logs in. The end of ctx ends the session.
func (s *Sender) connect(ctx context.Context, server mailServer) (*smtp.Client, error) {
	plain, err := s.dial(ctx, "tcp", net.JoinHostPort(server.host, server.port))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { plain.Close() })
	conn := plain
	remote, _ := plain.RemoteAddr().(*net.TCPAddr)
	local := remote != nil && remote.IP.IsLoopback()
	encryption := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.roots, ServerName: server.host}
	if server.implicitTLS {
		conn = tls.Client(conn, encryption)
	}
	client, err := smtp.NewClient(conn, server.host)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if err := logIn(client, server, encryption, local); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

func logIn(client *smtp.Client, server mailServer, encryption *tls.Config, local bool) error {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "localhost"
	}
	if err := client.Hello(name); err != nil {
		return err
	}
	if !server.implicitTLS && !server.withoutTLS && !local {
		if ok, _ := client.Extension("STARTTLS"); !ok {
			return &Error{Message: server.host + " does not offer STARTTLS; use smtps:// if it has a port for TLS, or ?tls=off to send alerts in clear", Permanent: true}
		}
		if err := client.StartTLS(encryption); err != nil {
			return err
		}
	}
	if server.user == "" {
		return nil
	}
	if _, encrypted := client.TLSConnectionState(); !encrypted && !local {
		return &Error{Message: "a password is not sent to " + server.host + " in clear; remove ?tls=off", Permanent: true}
	}
	_, offered := client.Extension("AUTH")
	for _, mechanism := range []string{"PLAIN", "LOGIN"} {
		if strings.Contains(" "+offered+" ", " "+mechanism+" ") {
			return client.Auth(&credentials{mechanism: mechanism, user: server.user, password: server.password})
		}
	}
	return &Error{Message: fmt.Sprintf("%s offers no login by password (AUTH PLAIN or LOGIN), but %.100q", server.host, offered), Permanent: true}
}

// credentials log in. Those of net/smtp know PLAIN alone.
type credentials struct {
	mechanism, user, password string
	asked                     int
}

func (c *credentials) Start(*smtp.ServerInfo) (mechanism string, first []byte, err error) {
	if c.mechanism == "PLAIN" {
		return c.mechanism, plainCredentials(c.user, c.password), nil
	}
	return c.mechanism, nil, nil
}

// Next answers the two questions of LOGIN, whose wording differs between servers.
func (c *credentials) Next(_ []byte, more bool) ([]byte, error) {
	c.asked++
	switch {
	case !more:
		return nil, nil
	case c.mechanism == "LOGIN" && c.asked == 1:
		return []byte(c.user), nil
	case c.mechanism == "LOGIN" && c.asked == 2:
		return []byte(c.password), nil
	}
	return nil, errors.New("the mail server asks for more than user and password")
}

func plainCredentials(user, password string) []byte { return []byte("\x00" + user + "\x00" + password) }

// smtpError is the error of a session. Replies of 5xx are permanent.
func smtpError(host string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if reply, ok := errors.AsType[*textproto.Error](err); ok {
		return &Error{Message: fmt.Sprintf("%s answered %d %s", host, reply.Code, oneLine(reply.Msg, maxShown)), Permanent: reply.Code >= 500}
	}
	return &Error{Message: fmt.Sprintf("send through %s: %s", host, err)}
}

// mailMessage is the alert as a message. The first one of an alert has an id that the later
// ones refer to, so that mail programs show them together.
func mailMessage(a belfry.Alert, from *mail.Address, to []*mail.Address, now time.Time) []byte {
	m := Describe(a)
	_, domain, _ := strings.Cut(from.Address[strings.LastIndexByte(from.Address, '@'):], "@")
	first := fmt.Sprintf("<%s@%s>", a.ID, domain)
	recipients := make([]string, len(to))
	for i, recipient := range to {
		recipients[i] = recipient.String()
	}
	var b bytes.Buffer
	header := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	header("From", from.String())
	header("To", strings.Join(recipients, ",\r\n "))
	header("Subject", mime.QEncoding.Encode("utf-8", m.Title))
	header("Date", now.Format(time.RFC1123Z))
	if a.SentCount == 0 {
		header("Message-ID", first)
	} else {
		header("Message-ID", fmt.Sprintf("<%s@%s>", messageID(a), domain))
		header("In-Reply-To", first)
		header("References", first)
	}
	header("Auto-Submitted", "auto-generated") // no replies of absent people
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	fmt.Fprintf(w, "%s\n\n%s", m.Title, m)
	_ = w.Close() // a buffer takes everything
	return b.Bytes()
}
