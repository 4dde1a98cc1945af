// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

// connections returns the reports of a transport about its carrier.
func connections(cfg *transport.Config) <-chan error {
	reports := make(chan error, 100)
	cfg.OnEvent = func(e transport.Event) {
		if c, ok := e.(transport.Connection); ok {
			reports <- c.Err
		}
	}
	return reports
}

// next returns the next report.
func next(t *testing.T, reports <-chan error) error {
	t.Helper()
	select {
	case err := <-reports:
		return err
	case <-time.After(patience):
		t.Fatal("no report arrived")
		return nil
	}
}

// untilConnected waits until a carrier reports that it is connected.
func untilConnected(t *testing.T, reports <-chan error) {
	t.Helper()
	for next(t, reports) != nil {
		continue
	}
}

// echo repeats a request until there is a reply, because the loss of a connection may not have been
// detected yet.
func echo(t *testing.T, from, to *transport.Transport) {
	t.Helper()
	to.HandleRequest(kindEcho, func(_ context.Context, r *transport.Request) { _ = r.Reply(r.Payload) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		try, stop := context.WithTimeout(ctx, 2*time.Second)
		got, err := from.Request(try, to.Self(), kindEcho, []byte("hello"))
		stop()
		if err == nil && string(got) == "hello" {
			return
		}
		if err == nil || ctx.Err() != nil {
			t.Fatalf("Request = %q, %v, want the payload of the request before the time-out", got, err)
		}
		runtime.Gosched()
	}
}

func port(t *testing.T, s *embedded.Server) int {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A carrier reconnects to a server that was restarted with another token.
func TestReconnect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, at := startLasting(t, dir)
	var acfg transport.Config
	reports := connections(&acfg)
	carrier := connect(t, config(first, "a"))
	a, err := transport.Open(carrier, acfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	var bcfg transport.Config
	reportsB := connections(&bcfg)
	b := open(t, config(first, "b"), bcfg)
	echo(t, a, b)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := next(t, reports); err == nil {
		t.Error("the carrier reported a connection although the server is stopped")
	}
	if err := a.Send(b.Self(), transport.Data, kindEcho, nil); !errors.Is(err, transport.ErrDisconnected) {
		t.Errorf("Send without a server: %v, want ErrDisconnected", err)
	}
	if err := next(t, reportsB); err == nil {
		t.Error("the carrier reported a connection although the server is stopped")
	}
	start(t, embedded.Config{Dir: dir, Port: at})
	untilConnected(t, reports)
	untilConnected(t, reportsB)
	echo(t, a, b)
	echo(t, b, a)
	if n := carrier.Stats().Reconnects; n < 2 { // a connection may be lost again while a server starts
		t.Errorf("counted %d reconnects, want at least one for each of two connections", n)
	}
}

func TestServerStartsLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, at := startLasting(t, dir)
	cfg := config(first, "a")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	var tcfg transport.Config
	reports := connections(&tcfg)
	a := open(t, cfg, tcfg)
	if err := next(t, reports); err == nil {
		t.Error("the carrier reported a connection although the server does not run")
	}
	if err := a.Connected(); !errors.Is(err, transport.ErrDisconnected) {
		t.Errorf("Connected without a server: %v, want ErrDisconnected", err)
	}
	start(t, embedded.Config{Dir: dir, Port: at})
	untilConnected(t, reports)
	echo(t, a, a) // messages to the node itself pass the server
}

func TestServerWithSmallMaxPayload(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{Configure: func(o *server.Options) { o.MaxPayload = 64 << 10 }})
	var log lockedBuilder
	cfg := config(s, "a")
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	carrier := connect(t, cfg)
	a, err := transport.Open(carrier, transport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Connected(); !errors.Is(err, nats.ErrInvalid) || !strings.Contains(err.Error(), "MaxFrame") {
		t.Errorf("Connected to a server with a lower limit: %v, want ErrInvalid", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	for !strings.Contains(log.String(), "accepts 65536 bytes") { // the client logs on another goroutine
		runtime.Gosched()
	}
	cfg = config(s, "b")
	cfg.MaxFrame = 64 << 10
	b := open(t, cfg, transport.Config{CompressAbove: -1})
	b.HandleRequest(kindEcho, func(_ context.Context, r *transport.Request) { _ = r.Reply(r.Payload) })
	large := strings.Repeat("x", 1<<20)
	if got, err := b.Request(t.Context(), b.Self(), kindEcho, []byte(large)); string(got) != large || err != nil {
		t.Errorf("Request in frames of 64 KiB returned %d bytes, %v, want %d bytes", len(got), err, len(large))
	}
}

func TestClusterIsolation(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	cfg := config(s, "a.b.c:1")
	one := open(t, cfg, transport.Config{})
	cfg.Cluster = "other"
	two := open(t, cfg, transport.Config{}) // the same incarnation in another cluster
	two.HandleRequest(kindEcho, func(context.Context, *transport.Request) { t.Error("the other cluster received the request") })
	echo(t, one, one)
	if n := two.Stats().Lanes[transport.Data].FramesIn; n != 0 {
		t.Errorf("the other cluster received %d frames, want 0", n)
	}
}

func TestConnectErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := dir + "/" + name
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, secret := file("empty", " \n"), file("secret", "hunter2")
	for name, test := range map[string]struct {
		access nats.Access
		want   string
	}{
		"nothing":                   {nats.Access{}, "URLs is required"},
		"plain text":                {nats.Access{URLs: []string{"nats://example.com:4222"}}, "AllowPlaintext"},
		"a password":                {nats.Access{URLs: []string{"nats://u:hunter2@127.0.0.1"}}, "TokenFile"},
		"a malformed password":      {nats.Access{URLs: []string{"nats://u:hunter2%zz@127.0.0.1"}}, "URLs[0]"},
		"another scheme":            {nats.Access{URLs: []string{"http://127.0.0.1"}}, "scheme"},
		"no URL":                    {nats.Access{URLs: []string{"hunter2"}}, "URLs[0]"},
		"two identities":            {nats.Access{URLs: []string{"nats://127.0.0.1"}, TokenFile: secret, NKeyFile: secret}, "exclude"},
		"a certificate without key": {nats.Access{URLs: []string{"tls://127.0.0.1"}, CertFile: secret}, "must be set together"},
		"a missing file":            {nats.Access{URLs: []string{"nats://127.0.0.1"}, TokenFile: dir + "/none"}, "TokenFile"},
		"an empty token":            {nats.Access{URLs: []string{"nats://127.0.0.1"}, TokenFile: empty}, "is empty"},
		"no nkey":                   {nats.Access{URLs: []string{"nats://127.0.0.1"}, NKeyFile: secret}, "NKeyFile"},
		"no CA":                     {nats.Access{URLs: []string{"tls://127.0.0.1"}, CAFile: secret}, "no certificate"},
		"no certificate":            {nats.Access{URLs: []string{"tls://127.0.0.1"}, CertFile: secret, KeyFile: secret}, "CertFile"},
		"a negative timeout":        {nats.Access{URLs: []string{"nats://127.0.0.1"}, ConnectTimeout: -1}, "ConnectTimeout"},
	} {
		_, err := nats.Connect(nats.Config{Access: test.access, Cluster: "c", Self: node("a")})
		if !errors.Is(err, nats.ErrInvalid) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want ErrInvalid about %s", name, err, test.want)
		}
	}
	_, err := nats.Connect(nats.Config{Cluster: "a.b", MaxFrame: 1})
	for _, field := range []string{"Cluster", "Self", "MaxFrame", "URLs"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("the error does not name %s: %v", field, err)
		}
	}
}

func TestStartAndCloseTwice(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	c := connect(t, config(s, "a"))
	if err := c.Start(discardReceiver{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(discardReceiver{}); err == nil {
		t.Error("Start succeeded twice")
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if err := c.Start(discardReceiver{}); !errors.Is(err, nats.ErrClosed) {
		t.Errorf("Start after Close: %v, want ErrClosed", err)
	}
	if err := c.Send(transport.Data, c.Self(), []byte("x")); !errors.Is(err, nats.ErrClosed) {
		t.Errorf("Send after Close: %v, want ErrClosed", err)
	}
}

type discardReceiver struct{}

func (discardReceiver) Receive(transport.Lane, string, []byte) {}
func (discardReceiver) Connection(error)                       {}
