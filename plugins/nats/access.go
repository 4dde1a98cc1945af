// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/refold-io/refold/internal/fielderror"
)

// maxSecret is the maximum size of a secret or certificate file, in bytes.
const maxSecret = 1 << 20

// Access holds the addresses of the NATS servers and the client's credentials.
type Access struct {
	// URLs are the servers: "nats://host:4222" or "tls://host:4222". The client discovers other
	// servers of their cluster, unless plaintext connections stay on this machine, see
	// AllowPlaintext. A URL must not contain a password. Required.
	URLs []string
	// AllowPlaintext allows connections without TLS to other machines.
	AllowPlaintext bool

	// CAFile is a PEM file with the accepted certificate authorities. Defaults to those of the
	// system.
	CAFile string
	// CertFile and KeyFile are PEM files with the client's certificate and key. Default to none.
	CertFile, KeyFile string
	// ServerName is the expected name in the server's certificate. Defaults to the host in the URL.
	ServerName string

	// At most one of the following files identifies the client.

	// CredentialsFile holds a JWT and its key, in the format of nsc.
	CredentialsFile string
	// NKeyFile holds the seed of an nkey.
	NKeyFile string
	// TokenFile holds a token, or a user and a password as "user:password". The token and the user
	// must not contain a colon.
	TokenFile string

	// ConnectTimeout is the maximum time of one attempt to connect. Defaults to 2 s.
	ConnectTimeout time.Duration
}

func (a *Access) secure() bool {
	return a.CAFile != "" || a.CertFile != "" || a.ServerName != "" ||
		slices.ContainsFunc(a.URLs, func(u string) bool { return strings.HasPrefix(u, "tls://") || strings.HasPrefix(u, "wss://") })
}

func (a *Access) validate() error {
	var errs fielderror.Errors
	if len(a.URLs) == 0 {
		errs.Addf("Access.URLs", "is required")
	}
	for i, s := range a.URLs {
		field := fmt.Sprintf("Access.URLs[%d]", i)
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Host == "":
			errs.Addf(field, "is not a URL like nats://host:4222")
		case u.User != nil:
			errs.Addf(field, "holds a user or a token: put it into TokenFile")
		case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
			errs.Addf(field, "has the scheme %q, allowed are nats, tls, ws, wss", u.Scheme)
		case !a.secure() && !a.AllowPlaintext && !loopback(u.Hostname()):
			errs.Addf(field, "addresses another machine without TLS: use tls://, or set AllowPlaintext")
		}
	}
	if (a.CertFile == "") != (a.KeyFile == "") {
		errs.Addf("Access.CertFile", "and KeyFile must be set together")
	}
	given := 0
	for _, file := range []string{a.CredentialsFile, a.NKeyFile, a.TokenFile} {
		if file != "" {
			given++
		}
	}
	if given > 1 {
		errs.Addf("Access.CredentialsFile, NKeyFile and TokenFile", "exclude each other: set at most one")
	}
	fielderror.NotNegative(&errs, "Access.ConnectTimeout", a.ConnectTimeout)
	return errs.Err(ErrInvalid)
}

// exposed returns the first file with a secret that every user of this machine can read, "" for none.
func (a *Access) exposed() string {
	for _, file := range []string{a.CredentialsFile, a.NKeyFile, a.TokenFile, a.KeyFile} {
		if info, err := os.Stat(file); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0 {
			return file
		}
	}
	return ""
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// options returns the options of the client. It checks all files now, because the client would
// report missing and invalid files only at a later connection.
func (a *Access) options() ([]nats.Option, error) {
	if err := a.validate(); err != nil {
		return nil, err
	}
	opts := []nats.Option{
		nats.Timeout(cmp.Or(a.ConnectTimeout, 2*time.Second)),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 250*time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(), // a credential may be renewed
		nats.PingInterval(time.Second),
		nats.MaxPingsOutstanding(3),
		nats.FlusherTimeout(5 * time.Second),
	}
	if a.secure() {
		more, err := a.tls()
		if err != nil {
			return nil, err
		}
		opts = append(opts, more...)
	} else if !a.AllowPlaintext {
		opts = append(opts, nats.IgnoreDiscoveredServers()) // their addresses may be remote
	}
	identity, err := a.identity()
	if err != nil {
		return nil, err
	}
	return append(opts, identity...), nil
}

func (a *Access) tls() ([]nats.Option, error) {
	opts := []nats.Option{nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.ServerName})}
	if a.CAFile != "" {
		pem, err := readSecret("CAFile", a.CAFile)
		if err != nil {
			return nil, err
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: Access.CAFile %s contains no certificate", ErrInvalid, a.CAFile)
		}
		opts = append(opts, nats.RootCAs(a.CAFile))
	}
	if a.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile); err != nil {
			return nil, fmt.Errorf("%w: Access.CertFile, KeyFile: %w", ErrInvalid, err)
		}
		opts = append(opts, nats.ClientCert(a.CertFile, a.KeyFile))
	}
	return opts, nil
}

func (a *Access) identity() ([]nats.Option, error) {
	switch {
	case a.CredentialsFile != "":
		if _, err := readSecret("CredentialsFile", a.CredentialsFile); err != nil {
			return nil, err
		}
		return []nats.Option{nats.UserCredentials(a.CredentialsFile)}, nil
	case a.NKeyFile != "":
		if _, err := readSecret("NKeyFile", a.NKeyFile); err != nil {
			return nil, err
		}
		opt, err := nats.NkeyOptionFromSeed(a.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: Access.NKeyFile %s contains no seed", ErrInvalid, a.NKeyFile)
		}
		return []nats.Option{opt}, nil
	case a.TokenFile != "":
		secret, err := readToken(a.TokenFile)
		if err != nil {
			return nil, err
		}
		if strings.Contains(secret, ":") {
			return []nats.Option{nats.UserInfoHandler(func() (user, password string) {
				secret, _ := readToken(a.TokenFile) // the server refuses an empty token
				user, password, _ = strings.Cut(secret, ":")
				return user, password
			})}, nil
		}
		return []nats.Option{nats.TokenHandler(func() string {
			secret, _ := readToken(a.TokenFile)
			return secret
		})}, nil
	}
	return nil, nil
}

func readToken(file string) (string, error) {
	b, err := readSecret("TokenFile", file)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(b))
	if secret == "" {
		return "", fmt.Errorf("%w: Access.TokenFile %s is empty", ErrInvalid, file)
	}
	return secret, nil
}

func readSecret(field, file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("%w: Access.%s: %w", ErrInvalid, field, err)
	}
	if info.Size() > maxSecret {
		return nil, fmt.Errorf("%w: Access.%s %s has %d bytes, the limit is %d", ErrInvalid, field, file, info.Size(), maxSecret)
	}
	b, err := os.ReadFile(file) //nolint:gosec // the file that the user names
	if err != nil {
		return nil, fmt.Errorf("%w: Access.%s: %w", ErrInvalid, field, err)
	}
	return b, nil
}

var (
	// ErrInvalid is matched by errors of an invalid configuration.
	ErrInvalid = errors.New("nats: invalid configuration")
	// ErrClosed reports that the carrier is closed.
	ErrClosed = errors.New("nats: closed")

	errConnecting = errors.New("nats: not connected yet")
	errStarted    = errors.New("nats: started twice")
)

// because returns err, an error of the client. If err is nil or nats.ErrNoServers, it returns its
// second argument instead.
func because(err, otherwise error) error {
	if err == nil || errors.Is(err, nats.ErrNoServers) {
		return otherwise
	}
	return err
}

// explain adds the servers to a connection error. If the servers refuse the credentials, it also
// adds the kind of credentials. The result never contains a secret.
func (a *Access) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("no server answers at %s: %w", a.servers(), err)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired):
		return fmt.Errorf("%s refuses %s: %w", a.servers(), a.credentials(), err)
	}
	return fmt.Errorf("%s: %w", a.servers(), err)
}

// servers returns the addresses. They contain no secrets, because validate rejects addresses with
// secrets.
func (a *Access) servers() string { return strings.Join(a.URLs, ", ") }

func (a *Access) credentials() string {
	for _, c := range []struct{ field, file string }{
		{"CredentialsFile", a.CredentialsFile}, {"NKeyFile", a.NKeyFile}, {"TokenFile", a.TokenFile}, {"CertFile", a.CertFile},
	} {
		if c.file != "" {
			return c.field + " " + c.file
		}
	}
	return "a client without CredentialsFile, NKeyFile, TokenFile and CertFile"
}
