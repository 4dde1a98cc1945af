// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
)

// startConsole runs "refold console" until the test ends, and returns a client that is signed in and
// the address of the console.
func startConsole(t *testing.T, args ...string) (client *http.Client, address string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	p := program()
	var stderr strings.Builder
	p.Stdout, p.Stderr = in, &stderr
	ended := make(chan int, 1)
	go func() {
		ended <- p.Run(ctx, append([]string{"console", "--listen", "127.0.0.1:0"}, args...))
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
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client = &http.Client{Jar: jar}
	t.Cleanup(client.CloseIdleConnections)
	login := lines.Text()
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

// The printed address admits a browser, which then sees the events of the journal.
func TestConsoleOfAJournal(t *testing.T) {
	t.Parallel()
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
	client, address := startConsole(t, "--journal", "leveldb:"+dir)
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

// Other machines reach a console only with TLS and passwords.
func TestConsoleListensOnTheMachineItself(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--listen", "0.0.0.0:0"}, {"--listen", ":0"}, {"--listen", "192.0.2.1:1", "--passwords", "x"}, {"--tls-cert", "x"}, {"--listen", "x"}, {}} {
		p := program()
		var stderr strings.Builder
		p.Stdout, p.Stderr = io.Discard, &stderr
		if status := p.Run(t.Context(), append([]string{"console"}, args...)); status != 2 {
			t.Errorf("refold console %v: status %d, want 2: %s", args, status, stderr.String())
		}
	}
}
