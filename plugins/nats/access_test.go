// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// allowed returns a user with the permissions of NodePermissions.
func allowed(t *testing.T, name string) *server.User {
	t.Helper()
	p, err := nats.NodePermissions("test", name)
	if err != nil {
		t.Fatal(err)
	}
	return user(name, p)
}

// A user with the permissions of one node cannot send messages as another node.
func TestPermissions(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{Configure: func(o *server.Options) {
		o.Authorization = ""
		o.Users = []*server.User{allowed(t, "bob"), allowed(t, "mallory")}
	}})
	as := func(user string, self identity.Node) nats.Config {
		return nats.Config{
			Access:  nats.Access{URLs: []string{s.URL()}, TokenFile: write(t, "token", user+":secret-"+user), ConnectTimeout: patience},
			Cluster: "test", Self: self,
		}
	}
	aliceNode, bobNode := node("alice.example:1"), node("bob")
	heard := make(chan transport.Message, 10)
	hear := func(_ context.Context, m transport.Message) { heard <- m }
	bob := open(t, as("bob", bobNode), transport.Config{})
	bob.Handle(kindEcho, hear)
	bob.HandleNamed(kindEcho, hear)

	// The impostor publishes to subjects of alice: the server rejects this.
	impostor := connect(t, as("mallory", aliceNode))
	if err := impostor.Start(discardReceiver{}); err != nil {
		t.Fatal(err)
	}
	frame := func(from identity.Node, to uint64) []byte {
		m, err := link.New(link.Config{Self: from, MaxFrame: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Send(identity.Node{Name: "bob", UID: to}, link.Control, link.Message{Type: link.Tell, Kind: link.Kind(kindEcho), Payload: []byte("forged")}); err != nil {
			t.Fatal(err)
		}
		_, b, _ := m.Flush(0, link.Control, nil)
		return b
	}
	sendAsAlice := func() (err error) {
		for _, to := range []identity.Node{bobNode, {Name: "bob"}} {
			err = errors.Join(err, impostor.Send(transport.Control, to, frame(aliceNode, to.UID)))
		}
		return errors.Join(err, impostor.Flush(t.Context()))
	}
	for sendAsAlice() != nil { // the impostor reconnects after a while, because it may not subscribe
		runtime.Gosched()
	}
	// The impostor publishes to its own subjects, with alice in the frame header: the receiver
	// drops the frames.
	mallory := connect(t, as("mallory", node("mallory")))
	if err := mallory.Start(discardReceiver{}); err != nil {
		t.Fatal(err)
	}
	for _, to := range []identity.Node{bobNode, {Name: "bob"}} {
		if err := mallory.Send(transport.Control, to, frame(aliceNode, to.UID)); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []identity.Node{bobNode, {Name: "bob"}} { // after the forged frames
		if err := mallory.Send(transport.Control, to, frame(mallory.Self(), to.UID)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if m := <-heard; m.From != mallory.Self() {
			t.Errorf("bob received a message from %v, want only messages from %v", m.From, mallory.Self())
		}
	}
	if n := bob.Stats().Dropped[transport.DropForged]; n != 2 {
		t.Errorf("%d forged frames were counted, want 2", n)
	}
	for impostor.Stats().Refused < 2 { // the client reports the refusals on another goroutine
		runtime.Gosched()
	}
	if err := bob.Send(bobNode, transport.Data, kindEcho, nil); err != nil {
		t.Error(err)
	}
	if m := <-heard; m.From != bobNode {
		t.Errorf("bob received a message from %v, want %v", m.From, bobNode)
	}
}

func TestNodePermissions(t *testing.T) {
	t.Parallel()
	p, err := nats.NodePermissions("bank", "orders-1.example:7400")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`"refold.bank.control.*.*.orders-1~example:7400"`, `"refold.bank.join.*.orders-1~example:7400"`,
		`"refold.bank.bulk.orders-1~example:7400.*.*"`, `"refold.bank.admin.*.*.orders-1~example:7400.* refold"`,
	} {
		if !strings.Contains(p.String(), line) {
			t.Errorf("%s is missing in\n%s", line, p)
		}
	}
	opts := &server.Options{}
	file := write(t, "nats.conf", "authorization { users: [ { user: u, password: p, "+p.String()+" } ] }")
	if err := opts.ProcessConfigFile(file); err != nil {
		t.Errorf("the server rejected the permissions: %v", err)
	}
	if _, err := nats.NodePermissions("a.b", "n"); !errors.Is(err, nats.ErrInvalid) {
		t.Errorf("invalid cluster: %v, want ErrInvalid", err)
	}
	if _, err := nats.NodePermissions("a", "*"); !errors.Is(err, nats.ErrInvalid) {
		t.Errorf("invalid name: %v, want ErrInvalid", err)
	}
}

func TestNKeys(t *testing.T) {
	t.Parallel()
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := key.Seed()
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, embedded.Config{Configure: func(o *server.Options) {
		o.Authorization = ""
		o.Nkeys = []*server.NkeyUser{{Nkey: public}}
	}})
	cfg := nats.Config{Access: nats.Access{URLs: []string{s.URL()}, NKeyFile: write(t, "nkey", string(seed)), ConnectTimeout: patience}, Cluster: "test", Self: node("a")}
	a := open(t, cfg, transport.Config{})
	echo(t, a, a)
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := new(authority)
	a.file, _ = a.sign(t, a)
	return a
}

// sign writes a certificate and its key to files. The first certificate of an authority is the
// authority's own.
func (a *authority) sign(t *testing.T, by *authority) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "refold test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := by.cert, by.key
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		parent, signer = template, key
		a.key = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	if by.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile = write(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	keyFile = write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	return certFile, keyFile
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	good, bad := newAuthority(t), newAuthority(t)
	serverCert, serverKey := good.sign(t, good)
	s := start(t, embedded.Config{Configure: func(o *server.Options) {
		pair, err := tls.LoadX509KeyPair(serverCert, serverKey)
		if err != nil {
			t.Error(err)
		}
		pool := x509.NewCertPool()
		pool.AddCert(good.cert)
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
		o.TLSTimeout = patience.Seconds()
	}})
	clientCert, clientKey := good.sign(t, good)
	wrongCert, wrongKey := bad.sign(t, bad)
	access := accessTo(s)
	access.URLs = []string{strings.Replace(s.URL(), "nats://", "tls://", 1)}
	for name, test := range map[string]struct {
		ca, cert, key string
		works         bool
	}{
		"valid certificates":     {good.file, clientCert, clientKey, true},
		"no client certificate":  {good.file, "", "", false},
		"a wrong certificate":    {good.file, wrongCert, wrongKey, false},
		"an unknown authority":   {bad.file, clientCert, clientKey, false},
		"the system's authority": {"", clientCert, clientKey, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := nats.Config{Access: access, Cluster: "test", Self: node("a")}
			cfg.CAFile, cfg.CertFile, cfg.KeyFile = test.ca, test.cert, test.key
			var log lockedBuilder
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			a := open(t, cfg, transport.Config{})
			if err := a.Connected(); (err == nil) != test.works {
				t.Errorf("Connected: %v, want success: %t", err, test.works)
			}
			if test.works {
				echo(t, a, a)
			}
			token, err := os.ReadFile(s.TokenFile())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(log.String(), strings.TrimSpace(string(token))) {
				t.Errorf("the log contains the token: %s", log.String())
			}
		})
	}
}

// The carrier retries with a wrong token, because the token may be renewed. The token is not
// logged.
func TestWrongToken(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	right, err := os.ReadFile(s.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	var log lockedBuilder
	cfg := config(s, "a")
	cfg.TokenFile = write(t, "token", "hunter2")
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	var tcfg transport.Config
	reports := connections(&tcfg)
	a := open(t, cfg, tcfg)
	if err := next(t, reports); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the reported error is %v, want an error without the token", err)
	}
	if err := os.WriteFile(cfg.TokenFile, right, 0o600); err != nil {
		t.Fatal(err)
	}
	untilConnected(t, reports)
	echo(t, a, a)
	if s := log.String(); strings.Contains(s, "hunter2") || s == "" {
		t.Errorf("the log is %q, want lines without the token", s)
	}
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
