// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package deploytest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/transport"
)

// natsOptions are the settings in deploy/compose/nats.conf.
func natsOptions(tb testing.TB) *server.Options {
	tb.Helper()
	opts, err := server.ProcessConfigFile(filepath.Join(root, "deploy/compose/nats.conf"))
	if err != nil {
		tb.Fatal(err)
	}
	return opts
}

// The configuration of NATS has one account with a user for each node and one for an operator, with
// the permissions that the plugin computes.
func TestNATSConfiguration(t *testing.T) {
	t.Parallel()
	opts := natsOptions(t)
	if len(opts.Accounts) != 1 || len(opts.Users) != 4 {
		t.Errorf("%d accounts and %d users, want 1 and 4", len(opts.Accounts), len(opts.Users))
	}
	for _, user := range opts.Users {
		want, err := nats.NodePermissions("bank", user.Username)
		if user.Username == "operator" {
			want, err = nats.OperatorPermissions("bank", user.Username, transport.AdminAct)
		}
		if err != nil {
			t.Fatal(err)
		}
		if user.Permissions == nil || user.Permissions.Response != nil {
			t.Errorf("%s has the permissions %v, want some, without allow_responses", user.Username, user.Permissions)
			continue
		}
		for side, got := range map[string]*server.SubjectPermission{"publish": user.Permissions.Publish, "subscribe": user.Permissions.Subscribe} {
			allowed := want.Publish
			if side == "subscribe" {
				allowed = want.Subscribe
			}
			if !slices.Equal(got.Allow, allowed) || len(got.Deny) > 0 {
				t.Errorf("%s may %s\n%q\nexcept %q; refold cluster nats-permissions prints\n%q", user.Username, side, got.Allow, got.Deny, allowed)
			}
		}
	}
}

// startNATS starts a server on a free port. It returns its address.
func startNATS(tb testing.TB, opts *server.Options) string {
	tb.Helper()
	opts.Host, opts.Port, opts.HTTPPort, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, 0, true, true
	s, err := server.NewServer(opts)
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	tb.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		tb.Fatal("the NATS server does not start")
	}
	return s.Addr().String()
}

// certificates returns the certificate of an authority, and a configuration of TLS with a certificate
// of it for this machine.
func certificates(tb testing.TB) (authority string, cfg *tls.Config) {
	tb.Helper()
	make509 := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			tb.Fatal(err)
		}
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
		if parent == nil {
			parent, signer = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		if err != nil {
			tb.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			tb.Fatal(err)
		}
		return cert, key
	}
	ca, caKey := make509(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	cert, key := make509(&x509.Certificate{
		Subject: pkix.Name{CommonName: "nats"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, caKey)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})),
		&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}
}

// database returns the variables and the password of a new database.
func database(tb testing.TB) (variables map[string]string, password string) {
	tb.Helper()
	u, err := url.Parse(pgtest.DSN(tb))
	if err != nil {
		tb.Fatal(err)
	}
	host, port := u.Query().Get("host"), u.Query().Get("port")
	if host == "" {
		host, port = u.Hostname(), u.Port()
	}
	password, _ = u.User.Password()
	return map[string]string{
		"PGHOST": host, "PGPORT": port, "PGUSER": u.User.Username(), "PGDATABASE": u.Path[1:], "PGSSLMODE": "disable",
	}, password
}
