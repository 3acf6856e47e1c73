package notify_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/http/httptest"
	"net/mail"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/notify"
)

// mailServer is a real SMTP server that keeps what it gets.
type mailServer struct {
	address    string
	mechanisms []string // of AUTH; none: it needs no login
	refuse     map[string]error

	mutex    sync.Mutex
	messages []string
	to       []string
	logins   int
	secure   bool // the last message came encrypted
}

const (
	mailUser     = "belfry@example.com"
	mailPassword = "pass:CANARY/@#"
	mailURL      = "belfry%40example.com:pass%3ACANARY%2F%40%23@"
)

// certificate is valid for example.com and its subdomains.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	s := httptest.NewTLSServer(nil)
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.TLS.Certificates[0], roots
}

// serve starts the server, with STARTTLS if there is a certificate, and from the start if
// implicit.
func (m *mailServer) serve(t *testing.T, encryption *tls.Config, implicit bool) *mailServer {
	t.Helper()
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		_, secure := c.TLSConnectionState()
		return &mailSession{server: m, secure: secure}, nil
	}))
	server.Domain, server.AllowInsecureAuth, server.ErrorLog = "mail.example.com", true, quiet{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.address = listener.Addr().String()
	if implicit {
		listener = tls.NewListener(listener, encryption)
	} else {
		server.TLSConfig = encryption
	}
	var wg sync.WaitGroup
	wg.Go(func() { server.Serve(listener) })
	t.Cleanup(func() { listener.Close(); server.Close(); wg.Wait() })
	return m
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

type mailSession struct {
	server   *mailServer
	secure   bool
	loggedIn bool
	to       []string
}

func (s *mailSession) AuthMechanisms() []string { return s.server.mechanisms }

func (s *mailSession) Auth(mechanism string) (sasl.Server, error) {
	check := func(user, password string) error {
		if user != mailUser || password != mailPassword {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "wrong password " + password}
		}
		s.loggedIn = true
		s.server.mutex.Lock()
		defer s.server.mutex.Unlock()
		s.server.logins++
		return nil
	}
	if mechanism == "LOGIN" {
		return &loginServer{check: check}, nil
	}
	return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
}

// loginServer is the server's side of AUTH LOGIN.
type loginServer struct {
	check func(user, password string) error
	user  *string
}

func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	switch text := string(response); {
	case response == nil:
		return []byte("Username:"), false, nil
	case l.user == nil:
		l.user = &text
		return []byte("Password:"), false, nil
	default:
		return nil, true, l.check(*l.user, text)
	}
}

func (s *mailSession) Reset()        { s.to = nil }
func (s *mailSession) Logout() error { return nil }

func (s *mailSession) Mail(from string, _ *smtp.MailOptions) error {
	if len(s.server.mechanisms) > 0 && !s.loggedIn {
		return smtp.ErrAuthRequired
	}
	return s.server.refuse[from]
}

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	if err := s.server.refuse[to]; err != nil {
		return err
	}
	s.to = append(s.to, to)
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	s.server.mutex.Lock()
	defer s.server.mutex.Unlock()
	s.server.messages, s.server.to, s.server.secure = append(s.server.messages, string(text)), s.to, s.secure
	return errors.Join(err, s.server.refuse["data"])
}

// elsewhere is a connection to the server that seems to come from another machine.
type elsewhere struct{ net.Conn }

func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 25} }

// remote dials the server whatever the address is.
func (m *mailServer) remote(ctx context.Context, network, _ string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, m.address)
	return elsewhere{conn}, err
}

func emailChannel(url string) belfry.Channel {
	return belfry.Channel{Name: "mail", Type: belfry.ChannelEmail, URL: url, From: "Bélfry <belfry@example.com>", To: []string{"oncall@example.com", "Ada <ada@example.com>"}}
}

func TestEmailIsEncryptedAndLoggedIn(t *testing.T) {
	cert, roots := certificate(t)
	encryption := &tls.Config{Certificates: []tls.Certificate{cert}}
	for _, tt := range []struct {
		mechanism string
		url       string
		implicit  bool
	}{
		{"PLAIN", "smtp://" + mailURL + "mail.example.com", false},
		{"LOGIN", "smtp://" + mailURL + "mail.example.com:25", false},
		{"PLAIN", "smtps://" + mailURL + "mail.example.com", true},
	} {
		m := (&mailServer{mechanisms: []string{tt.mechanism}}).serve(t, encryption, tt.implicit)
		c := emailChannel(tt.url)
		if errors := notify.Validate(c); len(errors) > 0 {
			t.Fatal(errors)
		}
		if err := notify.New(m.remote, roots).Send(t.Context(), c, newAlert(belfry.AlertDead, belfry.AlertFiring)); err != nil {
			t.Fatalf("%s with %s: %v", tt.url, tt.mechanism, err)
		}
		if !m.secure || m.logins != 1 || len(m.messages) != 1 || strings.Join(m.to, " ") != "oncall@example.com ada@example.com" {
			t.Errorf("%s: encrypted %v, %d logins, %d messages to %v", tt.url, m.secure, m.logins, len(m.messages), m.to)
		}
	}
}

func TestAPasswordIsNeverSentInClear(t *testing.T) {
	for _, query := range []string{"", "?tls=off"} {
		m := (&mailServer{mechanisms: []string{"PLAIN"}}).serve(t, nil, false)
		e := failure(t, notify.New(m.remote, nil), emailChannel("smtp://"+mailURL+"mail.example.com"+query))
		if !e.Permanent || m.logins > 0 || len(m.messages) > 0 || strings.Contains(e.Message, "CANARY") {
			t.Errorf("%q: %d logins, %d messages, %+v", query, m.logins, len(m.messages), e)
		}
	}
	// The name of this machine may lead elsewhere.
	m := (&mailServer{mechanisms: []string{"PLAIN"}}).serve(t, nil, false)
	if e := failure(t, notify.New(m.remote, nil), emailChannel("smtp://"+mailURL+"localhost?tls=off")); m.logins > 0 || !e.Permanent {
		t.Errorf("%d logins, %+v", m.logins, e)
	}
}

func TestEmailInClear(t *testing.T) {
	m := (&mailServer{}).serve(t, nil, false)
	a := newAlert(belfry.AlertDead, belfry.AlertFiring)
	if e := failure(t, notify.New(m.remote, nil), emailChannel("smtp://mail.example.com")); !e.Permanent || !strings.Contains(e.Message, "STARTTLS") {
		t.Errorf("a server without STARTTLS: %+v", e)
	}
	if err := notify.New(m.remote, nil).Send(t.Context(), emailChannel("smtp://mail.example.com?tls=off"), a); err != nil || len(m.messages) != 1 {
		t.Errorf("with tls=off: %v", err)
	}
	mustSend(t, emailChannel("smtp://"+m.address), a) // on this machine
	local := (&mailServer{mechanisms: []string{"PLAIN"}}).serve(t, nil, false)
	mustSend(t, emailChannel("smtp://"+mailURL+local.address), a)
	if local.logins != 1 {
		t.Errorf("%d logins on this machine", local.logins)
	}
}

func TestAMailServerWithAnotherCertificateIsNotTrusted(t *testing.T) {
	cert, roots := certificate(t)
	m := (&mailServer{mechanisms: []string{"PLAIN"}}).serve(t, &tls.Config{Certificates: []tls.Certificate{cert}}, false)
	for _, s := range []*notify.Sender{notify.New(m.remote, nil), notify.New(m.remote, roots)} {
		if e := failure(t, s, emailChannel("smtp://"+mailURL+"mail.example.org")); m.logins > 0 || !strings.Contains(e.Message, "certificate") {
			t.Errorf("%d logins, %+v", m.logins, e)
		}
	}
}

func TestWhatAMailServerRefuses(t *testing.T) {
	reply := func(code int) error {
		return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 1, 1}, Message: "not with " + mailPassword}
	}
	for _, tt := range []struct {
		name      string
		refuse    map[string]error
		url       string
		permanent bool
		sent      int
		want      string
	}{
		{"the sender", map[string]error{"belfry@example.com": reply(550)}, "", true, 0, "answered 550"},
		{"the sender, for now", map[string]error{"belfry@example.com": reply(451)}, "", false, 0, "answered 451"},
		{"one recipient", map[string]error{"ada@example.com": reply(550)}, "", true, 1, "sent to 1 of 2 recipients: recipient ada@example.com: "},
		{"all recipients", map[string]error{"ada@example.com": reply(550), "oncall@example.com": reply(450)}, "", false, 0, "recipient oncall@example.com: "},
		{"the message", map[string]error{"data": reply(554)}, "", true, 1, "answered 554"},
		{"the password", nil, "belfry%40example.com:wrong-CANARY@", true, 0, "answered 535"},
	} {
		m := (&mailServer{mechanisms: []string{"PLAIN"}, refuse: tt.refuse}).serve(t, nil, false)
		if tt.url == "" {
			tt.url = mailURL
		}
		e := failure(t, newSender(), emailChannel("smtp://"+tt.url+m.address))
		if e.Permanent != tt.permanent || e.Sent != (tt.name == "one recipient") || len(m.messages) != tt.sent || !strings.Contains(e.Message, tt.want) || strings.Contains(e.Message, "CANARY") {
			t.Errorf("%s: %d messages, %+v", tt.name, len(m.messages), e)
		}
	}
}

func TestEmailsOfAnAlertAreOneThread(t *testing.T) {
	m := (&mailServer{}).serve(t, nil, false)
	c := emailChannel("smtp://" + m.address)
	for sent, status := range []belfry.AlertStatus{belfry.AlertFiring, belfry.AlertFiring, belfry.AlertResolved} {
		a := newAlert(belfry.AlertDead, status)
		a.SentCount = sent
		mustSend(t, c, a)
	}
	ids := map[string]bool{}
	first := ""
	for i, text := range m.messages {
		message := readMail(t, text)
		id := message.Header.Get("Message-Id")
		if ids[id] || message.Header.Get("In-Reply-To") != first || message.Header.Get("References") != first {
			t.Errorf("message %d: id %s in reply to %q, references %q", i, id, message.Header.Get("In-Reply-To"), message.Header.Get("References"))
		}
		ids[id] = true
		if i == 0 {
			first = id
		}
	}
	mustSend(t, c, newAlert(belfry.AlertDead, belfry.AlertFiring))
	if again := readMail(t, m.messages[3]).Header.Get("Message-Id"); again != first {
		t.Errorf("the first message, sent again, has the id %s, before %s", again, first)
	}
}

func readMail(t *testing.T, text string) *mail.Message {
	t.Helper()
	message, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return message
}

func TestHeadersOfEmailsCannotBeInjected(t *testing.T) {
	m := (&mailServer{}).serve(t, nil, false)
	c := emailChannel("smtp://" + m.address)
	c.From = "=?utf-8?b?YQ0KQmNjOiBldmlsQGV4YW1wbGUuY29t?= <belfry@example.com>"
	a := hostile()
	a.Subscription.Job = "päyroll\r\nBcc: evil@example.com"
	mustSend(t, c, a)
	message := readMail(t, m.messages[0])
	if bcc := message.Header.Get("Bcc"); bcc != "" || len(m.to) != 2 {
		t.Errorf("Bcc %q, sent to %v", bcc, m.to)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(message.Header.Get("Subject"))
	if want := "5,000 dead letters: päyroll Bcc: evil@example.com"; err != nil || subject != want {
		t.Errorf("subject %q: %v", subject, err)
	}
	for _, line := range strings.Split(m.messages[0], "\r\n") {
		if len(line) > 998 || strings.ContainsAny(line, "\r\n\x00") {
			t.Errorf("line %q", line)
		}
	}
	body, err := io.ReadAll(quotedprintable.NewReader(message.Body))
	if want := notify.Describe(a).String(); err != nil || !strings.HasSuffix(strings.ReplaceAll(string(body), "\r\n", "\n"), want) {
		t.Errorf("%v: got %s, want %s", err, body, want)
	}
	if _, err := message.Header.Date(); err != nil {
		t.Error(err)
	}
	if to, err := message.Header.AddressList("To"); err != nil || len(to) != 2 || to[1].Name != "Ada" {
		t.Errorf("to %v: %v", to, err)
	}
}
