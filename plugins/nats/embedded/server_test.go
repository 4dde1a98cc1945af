// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close() }()
	carrier, err := nats.Connect(nats.Config{
		Access: server.Access(), Cluster: "bank", Self: identity.Node{Name: "a:7400", UID: 1},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = carrier.Close() }()
	fmt.Println(carrier.Self())
	// Output: a:7400#1
}

func TestServer(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if u, failed := url.Parse(s.URL()); failed != nil || u.Hostname() != "127.0.0.1" {
		t.Errorf("the server listens on %s, %v, want 127.0.0.1", s.URL(), failed)
	}
	info, err := os.Stat(s.TokenFile())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token file has mode %v, %v, want 0600", info.Mode(), err)
	}
	if stranger, failed := natsgo.Connect(s.URL(), natsgo.Timeout(time.Minute)); !errors.Is(failed, natsgo.ErrAuthorization) {
		stranger.Close()
		t.Errorf("connect without the token: %v, want ErrAuthorization", failed)
	}
	token, err := os.ReadFile(s.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := natsgo.Connect(s.URL(), natsgo.Token(strings.TrimSpace(string(token))), natsgo.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if strings.Contains(string(token), nc.ConnectedServerName()[len("refold-embedded-"):]) {
		t.Errorf("the server's name %s contains a part of the token", nc.ConnectedServerName())
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(s.TokenFile())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary directory still exists: %v, want ErrNotExist", err)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start(embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	var port int
	if _, err = fmt.Sscan(u.Port(), &port); err != nil {
		t.Fatal(err)
	}
	other, err := embedded.Start(embedded.Config{Port: port})
	if err == nil {
		_ = other.Close()
		t.Fatal("a second server started on the same port")
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the error does not name the port that is in use: %v", err)
	}
}

// A directory belongs to one server. Start of a second server returns an error and does not modify
// the directory. The token remains after Close.
func TestDirInUse(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "nats")
	s, err := embedded.Start(embedded.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	before, err := os.ReadFile(s.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		other, failed := embedded.Start(embedded.Config{Dir: dir})
		if failed == nil {
			_ = other.Close()
		}
		if !errors.Is(failed, embedded.ErrInUse) || !strings.Contains(failed.Error(), dir) {
			t.Errorf("Start of a second server: %v, want ErrInUse with the directory %s", failed, dir)
		}
	}
	let := func(s *embedded.Server) {
		t.Helper()
		nc, failed := natsgo.Connect(s.URL(), natsgo.Token(strings.TrimSpace(string(before))), natsgo.Timeout(time.Minute))
		if failed != nil {
			t.Errorf("connect with the token: %v", failed)
			return
		}
		nc.Close()
	}
	let(s)
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	if err = os.Chmod(s.TokenFile(), 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := embedded.Start(embedded.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	let(again)
	if info, err := os.Stat(again.TokenFile()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token file has mode %v, %v, want 0600", info.Mode(), err)
	}
}

// A file without a valid token is left unchanged. An empty file is overwritten.
func TestInvalidToken(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]bool{"": true, "\n": true, "two words": false, "a:b": false, strings.Repeat("x", 1025): false} {
		dir := t.TempDir()
		file := filepath.Join(dir, "token")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := embedded.Start(embedded.Config{Dir: dir})
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), file) {
			t.Errorf("Start with the token file %.10q: %v, want success: %t", content, err, want)
		}
		if err == nil {
			_ = s.Close()
		}
		if got, err := os.ReadFile(file); err != nil || !want && string(got) != content {
			t.Errorf("the token file %.10q was changed to %q, %v", content, got, err)
		}
	}
}
