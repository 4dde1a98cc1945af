// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/transport"
)

// pipes is a listener of connections without a buffer: a write waits for its reader.
type pipes struct {
	net.Listener

	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// deaf opens a stream, reads its first event and reads no more.
func (p *pipes) deaf(t *testing.T, path string) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	p.conns <- server
	if _, err := io.WriteString(client, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(client); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "event: ") {
			return client
		}
	}
	t.Fatal("the stream ended before its first event")
	return nil
}

// A client that keeps its connection and does not read loses its stream, and the polls end.
func TestStreamOfClientThatDoesNotReadEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		admin := newNodes()
		listener := newPipes()
		server := &http.Server{Handler: open(t, console.Options{Admin: admin, Authorize: anyone}), ReadHeaderTimeout: time.Minute}
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(listener) })
		client := listener.deaf(t, "/stream?page=nodes")
		time.Sleep(time.Minute)
		polls := admin.total()
		time.Sleep(time.Minute)
		if after := admin.total(); polls == 0 || after != polls {
			t.Errorf("the nodes got %d requests in the first minute and %d afterwards, want some and 0", polls, after-polls)
		}
		_ = client.Close()
		_ = server.Close()
		serving.Wait()
	})
}

// A client that does not read delays the end of the server by less than a second.
func TestShutdownEndsStreamOfClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, console.Options{Authorize: anyone})
		listener := newPipes()
		server := &http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
		server.RegisterOnShutdown(c.Close)
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(listener) })
		client := listener.deaf(t, "/stream?page=nodes")
		time.Sleep(16 * time.Second) // a comment waits for the client
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		c.Close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the server ended %v after Shutdown, want at most 1 s", took)
		}
		_ = client.Close()
		_ = server.Close()
		serving.Wait()
	})
}

// held does not answer requests that contain a text, until their context ends.
type held struct {
	*nodes

	text string
	got  chan struct{} // closed by the first such request
	once sync.Once
}

func (h *held) Ask(ctx context.Context, cluster string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
	if strings.Contains(string(request), h.text) {
		h.once.Do(func() { close(h.got) })
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return h.nodes.Ask(ctx, cluster, right, node, request)
}

// Close does not wait for the events that a resumed tail still reads.
func TestCloseEndsResumedTail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		admin := &held{nodes: newNodes(), text: `"after":"resumed"`, got: make(chan struct{})}
		admin.set("inspect tail", `{"tail":{"next":"7"}}`)
		c := open(t, console.Options{Admin: admin, Authorize: anyone})
		var all sync.WaitGroup
		openStream(t.Context(), c, "/stream?page=tail&after=resumed", &all)
		<-admin.got
		began := time.Now()
		c.Close()
		all.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the stream ended %v after Close, want at most 1 s", took)
		}
	})
}

// failing fails the requests that contain a text while it is broken, and counts them.
type failing struct {
	*nodes

	broken atomic.Bool
	text   string
	asked  atomic.Int32
}

func (f *failing) Ask(ctx context.Context, cluster string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
	if strings.Contains(string(request), f.text) {
		f.asked.Add(1)
	}
	if f.broken.Load() {
		return nil, errors.New("no node answers")
	}
	return f.nodes.Ask(ctx, cluster, right, node, request)
}

// A tail whose nodes do not answer for minutes continues after its last event.
func TestTailContinuesAfterOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		admin := &failing{nodes: newNodes(), text: `"from_end":true`}
		admin.set("inspect tail", `{"tail":{"next":"7"}}`)
		c := open(t, console.Options{Admin: admin, Authorize: anyone})
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		w := openStream(ctx, c, "/stream?page=tail", &all)
		time.Sleep(time.Minute)
		admin.broken.Store(true)
		time.Sleep(5 * time.Minute)
		admin.broken.Store(false)
		time.Sleep(time.Minute)
		leave()
		all.Wait()
		if n := admin.asked.Load(); n != 1 {
			t.Errorf("the tail began %d times at the end of the journal, want once", n)
		}
		if !strings.Contains(w.Body.String(), "no node answers") {
			t.Error("the stream does not contain the outage")
		}
	})
}

// A tail whose old events cannot be read at first reads them later.
func TestTailResumesAfterFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		admin := &failing{nodes: newNodes(), text: `"after":"3"`}
		admin.set("inspect tail", `{"tail":{"next":"7"}}`)
		admin.broken.Store(true)
		c := open(t, console.Options{Admin: admin, Authorize: anyone})
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		_ = openStream(ctx, c, "/stream?page=tail&after=3", &all)
		time.Sleep(9 * time.Second)
		if n := admin.asked.Load(); n != 5 {
			t.Errorf("the stream has tried %d times to read the events, want once per poll", n)
		}
		admin.broken.Store(false)
		time.Sleep(time.Minute)
		leave()
		all.Wait()
		if n := admin.asked.Load(); n != 6 {
			t.Errorf("the stream has read its first page after %d requests, want 6", n)
		}
	})
}

// The shutdown of a server over real sockets ends a tail, and its client reads a complete response.
func TestShutdownEndsTail(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	admin.set("inspect tail", `{"tail":{"next":"7"}}`)
	c := open(t, console.Options{Admin: admin, Authorize: anyone})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
	server.RegisterOnShutdown(c.Close)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"/stream?page=tail", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	carrier := &http.Transport{}
	defer carrier.CloseIdleConnections()
	response, err := carrier.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body := bufio.NewReader(response.Body)
	for line := ""; line != "event: live\n"; {
		if line, err = body.ReadString('\n'); err != nil {
			t.Fatalf("the stream ended before the live part of the page: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	if err = server.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); effort.Soak() && took > time.Second { // no other work runs on the machine during a soak
		t.Errorf("the stream ended %v after Shutdown, want at most 1 s", took)
	}
	if _, err = io.Copy(io.Discard, body); err != nil {
		t.Errorf("the client read an incomplete response: %v", err)
	}
	if err = <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("the server ended with %v", err)
	}
}

// A stream over HTTP/2 stays open while nothing changes.
func TestStreamOverHTTP2StaysOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := newPipes()
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{Handler: open(t, console.Options{Authorize: anyone, Interval: time.Minute}), ReadHeaderTimeout: time.Minute, Protocols: &protocols}
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(listener) })
		carrier := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, served := net.Pipe()
			listener.conns <- served
			return client, nil
		}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/stream?page=entities", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := carrier.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if response.ProtoMajor != 2 {
			t.Errorf("the response has the protocol %s, want HTTP/2", response.Proto)
		}
		comments := 0
		for lines := bufio.NewReader(response.Body); comments < 3; {
			line, failed := lines.ReadString('\n')
			if failed != nil {
				t.Errorf("the stream ended after %d comments: %v", comments, failed)
				break
			}
			if line == ":\n" {
				comments++
			}
		}
		_ = response.Body.Close()
		carrier.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	})
}
