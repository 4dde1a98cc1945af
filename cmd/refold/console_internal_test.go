// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

// runConsole runs "refold console" until the test ends, and returns the address that it prints.
func runConsole(t *testing.T, args ...string) (printed string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	p := program()
	var stderr strings.Builder
	p.Stdout, p.Stderr = in, &stderr
	ended := make(chan int, 1)
	go func() {
		ended <- p.Run(ctx, append([]string{"console"}, args...))
		_ = in.Close()
	}()
	t.Cleanup(func() {
		stop()
		if status := <-ended; status != 0 {
			t.Errorf("refold console ended with the status %d: %s", status, stderr.String())
		}
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("refold console printed no address")
	}
	return lines.Text()
}

// startConsole runs "refold console" until the test ends, and returns a client that is signed in and
// the address of the console.
func startConsole(t *testing.T, args ...string) (client *http.Client, address string) {
	t.Helper()
	login := runConsole(t, append([]string{"--listen", "127.0.0.1:0"}, args...)...)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client = &http.Client{Jar: jar}
	t.Cleanup(client.CloseIdleConnections)
	fetch(t, client, login)
	address, _, _ = strings.Cut(login, "/login")
	return client, address
}

func fetch(t *testing.T, client *http.Client, address string) string {
	t.Helper()
	response, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %v: %s", address, response.StatusCode, err, text)
	}
	return string(text)
}

// newJournal creates a journal with one event and returns its address.
func newJournal(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	db, err := leveldb.Open(dir, leveldb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	events := []journal.Event{{SequenceNr: 1, Manifest: "opened", Payload: []byte(`{"owner":"ann"}`)}}
	errs := db.Journal().Append(t.Context(), []journal.Write{{ID: "account|7", Writer: "w", Events: events}})
	if err = errors.Join(append(errs, db.Close())...); err != nil {
		t.Fatal(err)
	}
	return "leveldb:" + dir
}

// The printed address admits a browser, which then sees the events of the journal.
func TestConsoleOfAJournal(t *testing.T) {
	t.Parallel()
	client, address := startConsole(t, "--journal", newJournal(t))
	if page := fetch(t, client, address+"/entities"); !strings.Contains(page, "account|7") {
		t.Errorf("the list of entities is %s", page)
	}
	if page := fetch(t, client, address+"/entities/account%7C7"); !strings.Contains(page, "opened") {
		t.Errorf("the page of the entity is %s", page)
	}
	stranger, err := http.Get(address + "/entities")
	if err != nil {
		t.Fatal(err)
	}
	_ = stranger.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if stranger.StatusCode != http.StatusUnauthorized {
		t.Errorf("a browser without a token got the status %d, want 401", stranger.StatusCode)
	}
}

// The command shows the nodes of a cluster over NATS.
func TestConsoleOfACluster(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("a")
	client, address := startConsole(t, "--cluster", "lab", "--nats", l.server.URL(), "--token-file", l.server.TokenFile())
	if page := fetch(t, client, address+"/nodes"); !strings.Contains(page, `id="node-a"`) {
		t.Errorf("the page of the nodes is %s", page)
	}
}

// Other machines reach a console only with TLS and passwords. The error names the missing flags.
func TestConsoleListensOnTheMachineItself(t *testing.T) {
	t.Parallel()
	const needs = "it needs --tls-cert, --tls-key and --passwords"
	for args, want := range map[string]string{
		"--listen 0.0.0.0:0": needs, "--listen :0": needs, "--listen [::]:0": needs, "--listen 192.0.2.1:1 --passwords x": needs,
		"--listen 192.0.2.1:1 --tls-cert x --tls-key x": needs, "--tls-cert x": "--tls-cert and --tls-key", "--listen x": "--listen: ", "": "--cluster",
	} {
		p := program()
		var stderr strings.Builder
		p.Stdout, p.Stderr = io.Discard, &stderr
		if status := p.Run(t.Context(), append([]string{"console"}, strings.Fields(args)...)); status != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("refold console %s: status %d, %s; want 2 and %q", args, status, stderr.String(), want)
		}
	}
}

// writeCertificate writes a certificate for 127.0.0.1 and its key to files. The pool trusts it.
func writeCertificate(t *testing.T) (certFile, keyFile string, trusted *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, data []byte) (path string, text []byte) {
		path, text = filepath.Join(t.TempDir(), name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})
		if err = os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path, text
	}
	certFile, text := write("cert.pem", "CERTIFICATE", der)
	keyFile, _ = write("key.pem", "PRIVATE KEY", private)
	trusted = x509.NewCertPool()
	trusted.AppendCertsFromPEM(text)
	return certFile, keyFile, trusted
}

// On all addresses of the machine, the console serves TLS only, and admits a user with the password only.
func TestConsoleServesOtherMachines(t *testing.T) {
	t.Parallel()
	hash, err := bcrypt.GenerateFromPassword([]byte("sesame"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	passwords := filepath.Join(t.TempDir(), "passwords")
	if err = os.WriteFile(passwords, []byte("ann:"+string(hash)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, trusted := writeCertificate(t)
	printed := runConsole(t, "--listen", "0.0.0.0:0", "--tls-cert", certFile, "--tls-key", keyFile, "--passwords", passwords, "--journal", newJournal(t))
	u, err := url.Parse(printed)
	if err != nil || u.Scheme != "https" || u.RawQuery != "" {
		t.Fatalf("refold console printed %q, %v; want an https address without a token", printed, err)
	}
	host := net.JoinHostPort("127.0.0.1", u.Port())
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	secure := false // the cookie of the session
	redirected := func(r *http.Request, _ []*http.Request) error {
		secure = slices.ContainsFunc(r.Response.Cookies(), func(c *http.Cookie) bool { return c.Secure && c.HttpOnly })
		return nil
	}
	client := &http.Client{Jar: jar, CheckRedirect: redirected, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	send := func(method, address, body string) (status int, text string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "https://"+host)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", method, address, err)
		}
		defer func() { _ = response.Body.Close() }()
		data, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatalf("%s %s: %v", method, address, err)
		}
		return response.StatusCode, string(data)
	}
	if status, text := send(http.MethodGet, "http://"+host+"/login", ""); status != http.StatusBadRequest || strings.Contains(text, "<form") {
		t.Errorf("a client without TLS got the status %d, want 400: %s", status, text)
	}
	for _, form := range []string{"user=ann&password=wrong", "user=bob&password=sesame", "user=ann&password="} {
		if status, text := send(http.MethodPost, "https://"+host+"/login", form); status != http.StatusForbidden {
			t.Errorf("the login %q got the status %d, want 403: %s", form, status, text)
		}
	}
	if status, _ := send(http.MethodGet, "https://"+host+"/entities", ""); status != http.StatusUnauthorized {
		t.Errorf("a browser that is not signed in got the status %d, want 401", status)
	}
	if status, text := send(http.MethodPost, "https://"+host+"/login", "user=ann&password=sesame"); status != http.StatusOK || !strings.Contains(text, `id="user"`) {
		t.Errorf("the login with the password got the status %d, want the overview: %s", status, text)
	}
	if status, text := send(http.MethodGet, "https://"+host+"/entities", ""); status != http.StatusOK {
		t.Errorf("the user got the status %d, want 200: %s", status, text)
	}
	if !secure {
		t.Error("a browser sends the cookie of the session without TLS, or to scripts; want Secure and HttpOnly")
	}
}
