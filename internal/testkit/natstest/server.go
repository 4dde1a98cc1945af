// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package testnats starts NATS servers in processes of their own and splits them from
// each other, for tests of what holds when the network does not.
//
//	func TestMain(m *testing.M) {
//		testnats.RunIfServer() // this binary is the server, too
//		goleak.VerifyTestMain(m)
//	}
//
//	split := testnats.StartSplit(t, testnats.Config{Users: []testnats.User{{Name: "a"}, {Name: "b"}}})
//	left := connect(split.A.Access(t, "a"))
//	right := connect(split.B.Access(t, "b"))
//	split.Cut()                    // left and right are connected, and don't hear each other
//	split.Heal()                   // when it returns they do
//	split.Drop(testnats.AToB)      // right does not hear left any more
//
// # What can go wrong
//
//	between two servers       Split.Cut, Freeze, Drop and Stall, until Heal
//	between client and server a testproxy in front of Server.Addr, and Server.AccessVia
//	from one node to another  Server.Mute: by permissions, changed while the server runs
//	a server                  Server.Kill and Restart, with the same address
//
// Drop and Stall of a route are noticed by the servers only after hours, so that they
// last. A route that has lost bytes is made anew by Heal.
//
// An [Access] is made of strings only, so that a test can hand it to processes of its own.
// Servers end with the test, and when the test's process ends, however it does.
//
// [Access]: github.com/refold-io/refold/plugins/nats.Access
package natstest

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/internal/testkit/freeport"
	"github.com/refold-io/refold/internal/testkit/tcpproxy"
	"github.com/refold-io/refold/plugins/nats"
)

// probeUser is the user of this package, whom every server knows.
const probeUser = "testnats"

// Server is a NATS server in a process of its own. Its methods are safe for
// concurrent use; what they can't do ends the test.
type Server struct {
	tb     testing.TB
	dir    string
	name   string
	secret string // of probeUser

	mu                    sync.Mutex
	cfg                   Config
	clientPort, routePort int // the latter is -1 if there are no routes
	child                 *exec.Cmd
	in                    io.WriteCloser
	out                   *bufio.Reader
}

// Start starts a server. It is ready when Start returns, and ends with the test.
func Start(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	s := &Server{tb: tb, dir: tb.TempDir(), name: "testnats-" + rand.Text(), secret: rand.Text(), cfg: cfg.clone()}
	tb.Cleanup(s.Kill)
	var err error
	for range 3 { // somebody else may take a port meanwhile
		s.clientPort, s.routePort = lastingPort(tb), lastingPort(tb)
		if err = s.launch(); err == nil {
			return s
		}
		s.Kill()
	}
	tb.Fatalf("testnats: %v", err)
	return nil
}

// lastingPort returns one that stays free while the server is away.
func lastingPort(tb testing.TB) int {
	tb.Helper()
	port, err := freeport.Find(tb.Context())
	if err != nil {
		tb.Fatalf("testnats: %v", err)
	}
	return port
}

// Restart starts the server again after Kill, at the same address and with what it has
// on disk.
func (s *Server) Restart() {
	s.tb.Helper()
	if err := s.launch(); err != nil {
		s.tb.Fatalf("testnats: %v", err)
	}
}

func (s *Server) launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil {
		return errors.New("the server is running")
	}
	s.write()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// A test binary that does not call RunIfServer runs no tests, and is found out.
	child := exec.Command(self, "-test.run=^$") //nolint:noctx,gosec // this program, and it lives until Kill
	child.Env = append(os.Environ(), configVariable+"="+s.config())
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		return err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err = child.Start(); err != nil {
		return fmt.Errorf("start a server: %w", err)
	}
	s.child, s.in, s.out = child, in, bufio.NewReader(out)
	ports, err := s.answer()
	if err == nil {
		_, err = fmt.Sscan(ports, &s.clientPort, &s.routePort)
	}
	if err != nil {
		return fmt.Errorf("a server does not start (does TestMain call RunIfServer?): %w", err)
	}
	return nil
}

// Kill ends the server as SIGKILL does. A second call does nothing.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil {
		return
	}
	_, _ = s.child.Process.Kill(), s.in.Close()
	_ = s.child.Wait() // killed
	s.child = nil
}

// Change changes the configuration while the server runs: users come and go and get
// other rights. It is in force when Change returns.
func (s *Server) Change(change func(*Config)) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg = s.cfg.clone()
	change(&s.cfg)
	s.write()
	if s.child == nil {
		return
	}
	if _, err := s.tell(commandReload); err != nil {
		s.tb.Fatalf("testnats: change a server: %v", err)
	}
}

// Mute loses what the node "from" sends to the node "to", a user of this server that has
// its name, without anybody noticing, until unmute is called.
func (s *Server) Mute(from, to string) (unmute func()) {
	s.tb.Helper()
	subjects := []string{"refold.*.*." + token(to) + ".*." + token(from), "refold.*.join." + token(to) + "." + token(from)}
	known := false
	s.deny(to, func(denied []string) []string {
		known = true
		return slices.Concat(denied, subjects)
	})
	if !known {
		s.tb.Fatalf("testnats: no user %q", to)
	}
	return func() {
		s.deny(to, func(denied []string) []string {
			return slices.DeleteFunc(slices.Clone(denied), func(subject string) bool { return slices.Contains(subjects, subject) })
		})
	}
}

func (s *Server) deny(user string, change func([]string) []string) {
	s.tb.Helper()
	s.Change(func(c *Config) {
		for i := range c.Users {
			if c.Users[i].Name == user {
				c.Users[i].Deny.Subscribe = change(c.Users[i].Deny.Subscribe)
			}
		}
	})
}

// token returns a name as it stands in a subject.
func token(name string) string { return strings.ReplaceAll(name, ".", "~") }

// Addr returns host and port for clients.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("127.0.0.1:%d", s.clientPort)
}

// RouteAddr returns host and port for other servers.
func (s *Server) RouteAddr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("127.0.0.1:%d", s.routePort)
}

// Access returns how a user connects. The file in it is there until tb ends.
func (s *Server) Access(tb testing.TB, user string) nats.Access {
	tb.Helper()
	return access(tb, s.Addr(), user)
}

// AccessVia returns how a user connects through a proxy.
func (s *Server) AccessVia(tb testing.TB, proxy *tcpproxy.Proxy, user string) nats.Access {
	tb.Helper()
	return access(tb, proxy.Addr(), user)
}

func access(tb testing.TB, addr, user string) nats.Access {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "token")
	if err := os.WriteFile(file, []byte(login(user)+":"+login(user)), 0o600); err != nil {
		tb.Fatalf("testnats: %v", err)
	}
	return nats.Access{URLs: []string{"nats://" + addr}, TokenFile: file, ConnectTimeout: time.Minute}
}

// WaitForRoutes returns when the server has so many routes.
func (s *Server) WaitForRoutes(n int) {
	s.tb.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for s.routes() != n {
		select {
		case <-ticker.C:
		case <-s.tb.Context().Done():
			s.tb.Fatalf("testnats: the server does not get to %d routes", n)
		}
	}
}

func (s *Server) routes() (n int) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil {
		return 0
	}
	text, err := s.tell(commandRoutes)
	if err == nil {
		_, err = fmt.Sscan(text, &n)
	}
	if err != nil {
		s.tb.Fatalf("testnats: ask a server for its routes: %v", err)
	}
	return n
}

// passes returns when what a client sends to one server reaches clients of the other. A
// server tells others of its clients in order, so they know about all the earlier ones
// then.
func passes(from, to *Server) {
	from.tb.Helper()
	sender, receiver := from.probe(), to.probe()
	defer sender.Close()
	defer receiver.Close()
	arrived := make(chan *natsgo.Msg, 1024)
	subject := "testnats." + rand.Text()
	if _, err := receiver.ChanSubscribe(subject, arrived); err != nil {
		from.tb.Fatalf("testnats: %v", err)
	}
	if err := receiver.Flush(); err != nil {
		from.tb.Fatalf("testnats: %v", err)
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		if err := sender.Publish(subject, nil); err != nil {
			from.tb.Fatalf("testnats: %v", err)
		}
		select {
		case <-arrived:
			return
		case <-ticker.C:
		case <-from.tb.Context().Done():
			from.tb.Fatal("testnats: nothing passes between the servers")
		}
	}
}

// probe connects as a user of this package.
func (s *Server) probe() *natsgo.Conn {
	s.tb.Helper()
	nc, err := natsgo.Connect("nats://"+s.Addr(), natsgo.UserInfo(probeUser, s.secret), natsgo.Timeout(time.Minute), natsgo.NoReconnect())
	if err != nil {
		s.tb.Fatalf("testnats: connect: %v", err)
	}
	return nc
}

// tell gives a command, with the lock held.
func (s *Server) tell(command string) (string, error) {
	if _, err := io.WriteString(s.in, command+"\n"); err != nil {
		return "", err
	}
	return s.answer()
}

func (s *Server) answer() (string, error) {
	line, err := s.out.ReadString('\n')
	if err != nil {
		return "", err
	}
	what, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if what != "ok" {
		return "", fmt.Errorf("it says %q", strings.TrimSpace(line))
	}
	return rest, nil
}

func (s *Server) config() string { return filepath.Join(s.dir, "nats.conf") }

// write writes the configuration file, with the lock held.
func (s *Server) write() {
	s.tb.Helper()
	cfg := s.cfg.clone()
	cfg.Users = append(cfg.Users, User{Name: probeUser, password: s.secret})
	text := cfg.text(s.name, filepath.Join(s.dir, "jetstream"), s.clientPort, s.routePort)
	if err := os.WriteFile(s.config(), []byte(text), 0o600); err != nil {
		s.tb.Fatalf("testnats: %v", err)
	}
}
