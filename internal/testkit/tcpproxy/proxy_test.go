// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package tcpproxy_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/internal/testkit/tcpproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peers returns both ends of a connection through a proxy.
func peers(t *testing.T, network string) (proxy *tcpproxy.Proxy, client, server net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "proxy") //nolint:usetesting // the path of t.TempDir is too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		addr = filepath.Join(dir, "s")
	}
	listener, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	proxy = tcpproxy.Start(t, listener.Addr().String())
	if client, err = net.Dial("tcp", proxy.Addr()); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = listener.Close(), client.Close(), server.Close() })
	return proxy, client, server
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got[:n], err, want)
	}
}

// nothing checks that no bytes arrive for a moment.
func nothing(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes, %v, want no bytes", n, err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

func TestForwardsBothWays(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			proxy, client, server := peers(t, network)
			send(t, server, "hello")
			expect(t, client, "hello")
			large := bytes.Repeat([]byte("0123456789"), 100_000)
			go func() {
				_, _ = client.Write(large)
				_ = client.Close()
			}()
			if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, large) {
				t.Fatalf("received %d bytes, %v, want all bytes that were sent", len(got), err)
			}
			want := tcpproxy.Stats{ToServer: int64(len(large)), ToClient: 5}
			if got := proxy.Stats(); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// For each position and either direction, exactly the bytes before the fault arrive.
func TestCutAndResetAtEachByte(t *testing.T) {
	t.Parallel()
	const text = "0123456789"
	for _, action := range []tcpproxy.Action{tcpproxy.Cut, tcpproxy.Reset} {
		for _, direction := range []tcpproxy.Direction{tcpproxy.ToServer, tcpproxy.ToClient} {
			for after := range len(text) + 1 {
				fault := tcpproxy.Fault{Direction: direction, After: int64(after), Action: action}
				t.Run(fault.String(), func(t *testing.T) {
					t.Parallel()
					proxy, client, server := peers(t, "tcp")
					send(t, client, "before")
					expect(t, server, "before")
					send(t, server, "before")
					expect(t, client, "before")
					from, to := client, server
					if direction == tcpproxy.ToClient {
						from, to = server, client
					}
					armed := proxy.Arm(fault)
					send(t, from, text)
					<-armed.Struck()
					got, err := io.ReadAll(to)
					if string(got) != text[:after] {
						t.Errorf("received %q, want %q", got, text[:after])
					}
					if _, fromErr := from.Read(make([]byte, 1)); action == tcpproxy.Cut && (err != nil || !errors.Is(fromErr, io.EOF)) ||
						action == tcpproxy.Reset && (!errors.Is(err, syscall.ECONNRESET) || !errors.Is(fromErr, syscall.ECONNRESET)) {
						t.Errorf("receiver: %v, sender: %v, want no error and EOF after a Cut, ECONNRESET for both after a Reset", err, fromErr)
					}
				})
			}
		}
	}
}

// Delayed bytes and the end of the stream arrive after the release, even if the client has closed
// its connection.
func TestStallDeliversLate(t *testing.T) {
	t.Parallel()
	const text = "0123456789"
	for after := range len(text) {
		proxy, client, server := peers(t, "tcp")
		armed := proxy.Arm(tcpproxy.Fault{After: int64(after), Action: tcpproxy.Stall})
		send(t, client, text)
		<-armed.Struck()
		expect(t, server, text[:after])
		send(t, server, "other way")
		expect(t, client, "other way")
		send(t, client, "more")
		send(t, server, "unread") // so that the client resets when it closes
		nothing(t, server)
		_ = client.Close()
		nothing(t, server)
		armed.Release()
		armed.Release()
		if got, err := io.ReadAll(server); err != nil || string(got) != text[after:]+"more" {
			t.Fatalf("received %q, %v, want %q", got, err, text[after:]+"more")
		}
	}
}

func TestStallBothWays(t *testing.T) {
	t.Parallel()
	proxy, client, server := peers(t, "tcp")
	armed := proxy.Arm(tcpproxy.Fault{Direction: tcpproxy.ToClient, After: 2, Action: tcpproxy.Stall, Both: true})
	send(t, server, "1234")
	<-armed.Struck()
	expect(t, client, "12")
	send(t, client, "abc")
	nothing(t, server)
	nothing(t, client)
	armed.Release()
	expect(t, server, "abc")
	expect(t, client, "34")
}

func TestDropDiscardsBytes(t *testing.T) {
	t.Parallel()
	proxy, client, server := peers(t, "tcp")
	armed := proxy.Arm(tcpproxy.Fault{Direction: tcpproxy.ToClient, After: 2, Action: tcpproxy.Drop})
	send(t, server, "1234")
	<-armed.Struck()
	expect(t, client, "12")
	send(t, client, "abc")
	expect(t, server, "abc")
	nothing(t, client)
	if got := proxy.Stats().ToClient; got != 2 {
		t.Errorf("ToClient is %d, want 2", got)
	}
}

// A fault affects one connection. Bytes are counted over all connections. A released or replaced
// fault does not occur.
func TestFaultStrikesOnce(t *testing.T) {
	t.Parallel()
	proxy, client, server := peers(t, "tcp")
	proxy.Arm(tcpproxy.Fault{Action: tcpproxy.Reset})
	released := proxy.Arm(tcpproxy.Fault{After: 1, Action: tcpproxy.Reset})
	released.Release()
	send(t, client, "after")
	expect(t, server, "after")
	select {
	case <-released.Struck():
		t.Error("the fault occurred after its release")
	default:
	}
	armed := proxy.Arm(tcpproxy.Fault{After: 3, Action: tcpproxy.Stall})
	send(t, client, "12")
	expect(t, server, "12")
	send(t, client, "34")
	expect(t, server, "3")
	<-armed.Struck()
	nothing(t, server)
	armed.Release()
	send(t, client, "5678")
	expect(t, server, "45678")
}

func TestFrozen(t *testing.T) {
	t.Parallel()
	proxy, client, server := peers(t, "tcp")
	proxy.SetFrozen(true)
	send(t, client, "abc")
	send(t, server, "def")
	nothing(t, server)
	nothing(t, client)
	proxy.SetFrozen(false)
	expect(t, server, "abc")
	expect(t, client, "def")
}

func TestDown(t *testing.T) {
	t.Parallel()
	proxy, client, server := peers(t, "tcp")
	send(t, client, "there")
	expect(t, server, "there") // the proxy has accepted the connection
	proxy.SetDown(true)
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the existing connection: %v, want a reset", err)
	}
	if again, err := net.Dial("tcp", proxy.Addr()); err == nil {
		if _, err = again.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a new connection: %v, want a reset", err)
		}
		_ = again.Close()
	}
	proxy.SetDown(false)
	again, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for proxy.Stats().ToServer < int64(len("there")+len("back")) {
		send(t, again, "back")
	}
	proxy.ResetAll()
	_ = again.Close()
}

// A fault of a direction affects existing and new connections. It does not affect the other
// direction.
func TestDirections(t *testing.T) {
	t.Parallel()
	proxy, client, server := peers(t, "tcp")
	proxy.SetStalled(tcpproxy.ToServer, true)
	send(t, client, "abc")
	send(t, server, "def")
	expect(t, client, "def")
	nothing(t, server)
	proxy.SetStalled(tcpproxy.ToServer, false)
	expect(t, server, "abc")
	proxy.SetDropped(tcpproxy.ToClient, true)
	send(t, server, "lost")
	send(t, client, "abc")
	expect(t, server, "abc")
	nothing(t, client)
	proxy.SetDropped(tcpproxy.ToClient, false)
	send(t, server, "more")
	expect(t, client, "more")
}
