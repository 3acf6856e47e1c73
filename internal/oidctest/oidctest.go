// Package oidctest is an OpenID Connect issuer for tests: discovery, keys, authorization code with
// PKCE, device code and refresh tokens. It logs everybody in as the person that it is told.
package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Issuer is a running issuer.
type Issuer struct {
	*httptest.Server

	mu      sync.Mutex
	key     crypto.Signer
	keyID   int
	claims  map[string]any
	down    bool
	flows   map[string]url.Values // by code
	grants  map[string]url.Values // by refresh token or device code
	count   map[string]int        // requests by path
	changed func(claims map[string]any)
	secret  string // of clients
}

// New starts an issuer with an RSA key. The client "belfry" needs no secret, all others do: "hush".
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{claims: map[string]any{"sub": "u-1", "email": "ann@example.com", "groups": []string{"platform"}},
		flows: map[string]url.Values{}, grants: map[string]url.Values{}, count: map[string]int{}, secret: "hush"}
	i.Rotate(t, "RS256")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
			"device_authorization_endpoint": i.URL + "/device", "scopes_supported": []string{"openid", "groups", "offline_access"},
			// What a verifier must not follow:
			"id_token_signing_alg_values_supported": []string{"RS256", "ES256", "HS256", "none"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{"keys": i.publicKeys()})
	})
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /device", func(w http.ResponseWriter, r *http.Request) {
		code := rand.Text()
		i.grant(code, url.Values{"client_id": {r.FormValue("client_id")}})
		reply(w, http.StatusOK, map[string]any{"device_code": code, "user_code": "WDJB-MJHT", "verification_uri": i.URL + "/activate", "expires_in": 60, "interval": 1})
	})
	mux.HandleFunc("POST /token", i.token)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		i.count[r.URL.Path]++
		down := i.down
		i.mu.Unlock()
		if down {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(i.Close)
	return i
}

// Rotate replaces the key by a new one of RS256 or ES256.
func (i *Issuer) Rotate(t testing.TB, algorithm string) {
	t.Helper()
	var key crypto.Signer
	var err error
	if algorithm == "ES256" {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	} else {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key = key
	i.keyID++
}

// Set sets a claim of the person who logs in; nil removes it.
func (i *Issuer) Set(name string, value any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.claims = maps.Clone(i.claims)
	if i.claims[name] = value; value == nil {
		delete(i.claims, name)
	}
}

// SetSecret sets the secret that clients need.
func (i *Issuer) SetSecret(secret string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.secret = secret
}

// Change lets a function change the claims of every token before it is signed.
func (i *Issuer) Change(change func(claims map[string]any)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.changed = change
}

// Down makes the issuer answer with 503, or not.
func (i *Issuer) Down(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Requests is how often a path was asked for.
func (i *Issuer) Requests(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.count[path]
}

// Token signs the claims of the person, with others that are added or, if nil, removed.
func (i *Issuer) Token(more map[string]any) string { return i.TokenWith("", more) }

// TokenWith is Token with the algorithm none, or HS256 with the public key as its secret.
func (i *Issuer) TokenWith(algorithm string, more map[string]any) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	claims := maps.Clone(i.claims)
	maps.Copy(claims, map[string]any{"iss": i.URL, "aud": "belfry", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()})
	for name, value := range more {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	if i.changed != nil {
		i.changed(claims)
	}
	actual := algorithm
	if actual == "" {
		actual = "RS256"
		if _, ok := i.key.(*ecdsa.PrivateKey); ok {
			actual = "ES256"
		}
	}
	signed := encode(map[string]any{"alg": actual, "typ": "JWT", "kid": fmt.Sprint(i.keyID)}) + "." + encode(claims)
	digest := sha256.Sum256([]byte(signed))
	var signature []byte
	switch key := i.key.(type) {
	case *ecdsa.PrivateKey:
		r, s, _ := ecdsa.Sign(rand.Reader, key, digest[:])
		signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	case *rsa.PrivateKey:
		signature, _ = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
		if algorithm == "HS256" {
			mac := hmac.New(sha256.New, key.N.Bytes())
			mac.Write([]byte(signed))
			signature = mac.Sum(nil)
		}
	}
	if algorithm == "none" {
		signature = nil
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func (i *Issuer) publicKeys() []map[string]any {
	i.mu.Lock()
	defer i.mu.Unlock()
	text := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	jwk := map[string]any{"kid": fmt.Sprint(i.keyID), "use": "sig"}
	switch key := i.key.Public().(type) {
	case *ecdsa.PublicKey:
		point, _ := key.Bytes()
		maps.Copy(jwk, map[string]any{"kty": "EC", "crv": "P-256", "x": base64.RawURLEncoding.EncodeToString(point[1:33]), "y": base64.RawURLEncoding.EncodeToString(point[33:])})
	case *rsa.PublicKey:
		maps.Copy(jwk, map[string]any{"kty": "RSA", "n": text(key.N), "e": text(big.NewInt(int64(key.E)))})
	}
	return []map[string]any{jwk}
}

// authorize sends the browser back with a code at once.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || q.Get("state") == "" {
		http.Error(w, "not a request with state and PKCE", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	i.mu.Lock()
	i.flows[code] = q
	i.mu.Unlock()
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (i *Issuer) grant(token string, form url.Values) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.grants[token] = form
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	client, secret, ok := r.BasicAuth()
	if !ok {
		client, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	refuse := func(text string) { reply(w, http.StatusBadRequest, map[string]any{"error": text}) }
	i.mu.Lock()
	if client != "belfry" && secret != i.secret {
		i.mu.Unlock()
		refuse("invalid_client")
		return
	}
	var flow url.Values
	switch r.FormValue("grant_type") {
	case "authorization_code":
		flow = i.flows[r.FormValue("code")]
		delete(i.flows, r.FormValue("code"))
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if flow.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) || flow.Get("redirect_uri") != r.FormValue("redirect_uri") {
			flow = nil
		}
	case "refresh_token":
		flow = i.grants[r.FormValue("refresh_token")]
		delete(i.grants, r.FormValue("refresh_token")) // they rotate
	default:
		flow = i.grants[r.FormValue("device_code")]
	}
	i.mu.Unlock()
	if flow == nil || flow.Get("client_id") != client {
		refuse("invalid_grant")
		return
	}
	refresh := rand.Text()
	i.grant(refresh, url.Values{"client_id": {client}})
	more := map[string]any{"aud": client}
	if nonce := flow.Get("nonce"); nonce != "" {
		more["nonce"] = nonce
	}
	reply(w, http.StatusOK, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh, "id_token": i.Token(more)})
}

func encode(v any) string {
	text, _ := json.Marshal(v) // maps of plain values
	return base64.RawURLEncoding.EncodeToString(text)
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
