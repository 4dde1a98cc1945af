// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package natstest starts NATS servers in separate processes and partitions them, for tests of
// network faults.
//
//	func TestMain(m *testing.M) {
//		natstest.RunIfServer() // this binary is also the server
//		goleak.VerifyTestMain(m)
//	}
//
//	split := natstest.StartSplit(t, natstest.Config{Users: []natstest.User{{Name: "a"}, {Name: "b"}}})
//	left := connect(split.A.Access(t, "a"))
//	right := connect(split.B.Access(t, "b"))
//	split.Cut()                    // left and right stay connected to their servers, isolated from each other
//	split.Heal()                   // messages pass again when it returns
//	split.Drop(natstest.AToB)      // right receives nothing from left
//
// # Faults
//
//	between two servers       Split.Cut, Freeze, Drop and Stall, until Heal
//	between client and server a tcpproxy in front of Server.Addr, and Server.AccessVia
//	from one node to another  Server.Mute: by permissions, changed while the server runs
//	a server                  Server.Kill and Restart, with the same address
//
// The servers would detect Drop and Stall of a route only after hours, so these faults last until
// Heal. Heal replaces a route that has lost bytes.
//
// An [Access] consists of strings, so a test can pass it to other processes. Servers end with the
// test. They also end if the test process ends for any reason.
//
// [Access]: github.com/refold-io/refold/plugins/nats.Access
package natstest

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/internal/testkit/freeport"
	"github.com/refold-io/refold/internal/testkit/tcpproxy"
	"github.com/refold-io/refold/plugins/nats"
)

// probeUser is the user of this package on every server.
const probeUser = "natstest"

// Server is a NATS server in a separate process. Its methods are safe for concurrent use and fail
// the test on an error.
type Server struct {
	tb     testing.TB
	dir    string
	name   string
	secret string // password of probeUser

	mu                    sync.Mutex
	cfg                   Config
	clientPort, routePort int // routePort is -1 without routes
	child                 *exec.Cmd
	in                    io.WriteCloser
	out                   *bufio.Reader
}

// Start starts a server and waits until it is ready. The server ends with the test.
func Start(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	s := &Server{tb: tb, dir: tb.TempDir(), name: "natstest-" + rand.Text(), secret: rand.Text(), cfg: cfg.clone()}
	tb.Cleanup(s.Kill)
	var errs [3]error
	for range 3 { // another process may take a port first
		s.clientPort, errs[0] = freeport.Find(tb.Context())
		s.routePort, errs[1] = freeport.Find(tb.Context())
		if errs[2] = s.launch(); errs == [3]error{} {
			return s
		}
		s.Kill()
	}
	tb.Fatalf("natstest: %v", errors.Join(errs[:]...))
	return nil
}

// Restart starts the server again after Kill, with the same address and the data on its disk.
func (s *Server) Restart() {
	s.tb.Helper()
	if err := s.launch(); err != nil {
		s.tb.Fatalf("natstest: %v", err)
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
	// A test binary without RunIfServer runs no tests and fails here.
	child := exec.Command(self, "-test.run=^$") //nolint:noctx,gosec // the command is this program, which runs until Kill
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
		return fmt.Errorf("the server did not start (does TestMain call RunIfServer?): %w", err)
	}
	return nil
}

// Kill ends the server with SIGKILL. A second call has no effect.
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

// Change changes users and their permissions while the server runs. It returns when the change is
// in effect.
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
	if _, err := s.send(commandReload); err != nil {
		s.tb.Fatalf("natstest: change a server: %v", err)
	}
}

// Mute drops messages from the node from to the node to, which is a user of this server. The sender
// receives no error. unmute ends the effect.
func (s *Server) Mute(from, to string) (unmute func()) {
	s.tb.Helper()
	subjects := []string{"refold.*.*." + token(to) + ".*." + token(from), "refold.*.join." + token(to) + "." + token(from)}
	known := false
	s.deny(to, func(denied []string) []string {
		known = true
		return slices.Concat(denied, subjects)
	})
	if !known {
		s.tb.Fatalf("natstest: no user %q", to)
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

// token returns a name in the form of a subject token.
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

// Access returns the access of a user. Its file exists until tb ends.
func (s *Server) Access(tb testing.TB, user string) nats.Access {
	tb.Helper()
	return access(tb, s.Addr(), user)
}

// AccessVia returns the access of a user through a proxy.
func (s *Server) AccessVia(tb testing.TB, proxy *tcpproxy.Proxy, user string) nats.Access {
	tb.Helper()
	return access(tb, proxy.Addr(), user)
}

func access(tb testing.TB, addr, user string) nats.Access {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "token")
	if err := os.WriteFile(file, []byte(login(user)+":"+login(user)), 0o600); err != nil {
		tb.Fatalf("natstest: %v", err)
	}
	return nats.Access{URLs: []string{"nats://" + addr}, TokenFile: file, ConnectTimeout: time.Minute}
}

// WaitForRoutes waits until the server has n routes.
func (s *Server) WaitForRoutes(n int) {
	s.tb.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for s.routes() != n {
		select {
		case <-ticker.C:
		case <-s.tb.Context().Done():
			s.tb.Fatalf("natstest: the server has not reached %d routes", n)
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
	text, err := s.send(commandRoutes)
	if err == nil {
		_, err = fmt.Sscan(text, &n)
	}
	if err != nil {
		s.tb.Fatalf("natstest: count the routes of a server: %v", err)
	}
	return n
}

// passes waits until messages from clients of one server reach clients of the other. A server
// announces its clients in order. When a new client receives a message, all earlier clients are
// therefore announced too.
func passes(from, to *Server) {
	from.tb.Helper()
	sender, receiver := from.probe(), to.probe()
	defer sender.Close()
	defer receiver.Close()
	arrived := make(chan *natsgo.Msg, 1024)
	subject := "natstest." + rand.Text()
	if _, err := receiver.ChanSubscribe(subject, arrived); err != nil {
		from.tb.Fatalf("natstest: %v", err)
	}
	if err := receiver.Flush(); err != nil {
		from.tb.Fatalf("natstest: %v", err)
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		if err := sender.Publish(subject, nil); err != nil {
			from.tb.Fatalf("natstest: %v", err)
		}
		select {
		case <-arrived:
			return
		case <-ticker.C:
		case <-from.tb.Context().Done():
			from.tb.Fatal("natstest: no message passes between the servers")
		}
	}
}

func (s *Server) probe() *natsgo.Conn {
	s.tb.Helper()
	nc, err := natsgo.Connect("nats://"+s.Addr(), natsgo.UserInfo(probeUser, s.secret), natsgo.Timeout(time.Minute), natsgo.NoReconnect())
	if err != nil {
		s.tb.Fatalf("natstest: connect: %v", err)
	}
	return nc
}

// send sends a command and returns the response. The caller holds the lock.
func (s *Server) send(command string) (string, error) {
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
	label, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if label != "ok" {
		return "", fmt.Errorf("the server replied %q", strings.TrimSpace(line))
	}
	return rest, nil
}

func (s *Server) config() string { return filepath.Join(s.dir, "nats.conf") }

// write writes the configuration file. The caller holds the lock.
func (s *Server) write() {
	s.tb.Helper()
	cfg := s.cfg.clone()
	cfg.Users = append(cfg.Users, User{Name: probeUser, password: s.secret})
	text := cfg.text(s.name, filepath.Join(s.dir, "jetstream"), s.clientPort, s.routePort)
	if err := os.WriteFile(s.config(), []byte(text), 0o600); err != nil {
		s.tb.Fatalf("natstest: %v", err)
	}
}

// Direction is a direction between the servers of a Split. B opens the route to A, so the proxy
// treats A as the server.
type Direction = tcpproxy.Direction

const (
	// AToB is from A to B.
	AToB = tcpproxy.ToClient
	// BToA is from B to A.
	BToA = tcpproxy.ToServer
)

// Split is a pair of servers whose route passes a proxy. Clients stay connected to their servers
// during a fault. Call Heal before the next fault.
type Split struct {
	A, B  *Server
	proxy *tcpproxy.Proxy
	lost  bool // the route has lost bytes
}

// StartSplit starts two servers with the same users and waits for the route between them.
func StartSplit(tb testing.TB, cfg Config) *Split {
	tb.Helper()
	s := &Split{A: Start(tb, cfg)}
	s.proxy = tcpproxy.Start(tb, s.A.RouteAddr())
	cfg.Routes = append(cfg.clone().Routes, s.proxy.Addr())
	s.B = Start(tb, cfg)
	s.wait()
	return s
}

func (s *Split) wait() {
	s.A.tb.Helper()
	passes(s.A, s.B)
	passes(s.B, s.A)
}

// Cut ends the route and prevents a new one. When Cut returns, both servers have detected the end
// of the route.
func (s *Split) Cut() {
	s.A.tb.Helper()
	s.proxy.SetDown(true)
	s.A.WaitForRoutes(0)
	s.B.WaitForRoutes(0)
}

// Freeze delays all messages until Heal.
func (s *Split) Freeze() { s.proxy.SetFrozen(true) }

// Stall delays messages in one direction until Heal.
func (s *Split) Stall(d Direction) { s.proxy.SetStalled(d, true) }

// Drop discards messages in one direction.
func (s *Split) Drop(d Direction) {
	s.proxy.SetDropped(d, true)
	s.lost = true
}

// Heal ends all faults. When it returns, messages pass in both directions to all clients.
func (s *Split) Heal() {
	s.A.tb.Helper()
	if s.lost {
		s.Cut() // the rest of the stream would be invalid
	}
	s.lost = false
	s.proxy.SetFrozen(false)
	for _, d := range []Direction{AToB, BToA} {
		s.proxy.SetStalled(d, false)
		s.proxy.SetDropped(d, false)
	}
	s.proxy.SetDown(false)
	s.wait()
}

// configVariable is the environment variable that makes a process a server. Its value is the path
// of the configuration.
const configVariable = "REFOLD_TESTNATS_CONFIG"

// The commands on a server's standard input. The server replies on standard output with a line that
// starts with "ok" or "error". It exits at the end of its input.
const (
	commandReload = "reload"
	commandRoutes = "routes"
)

// RunIfServer is the first call of TestMain. In a process that was started as a server, it runs the
// server and does not return.
func RunIfServer() {
	path := os.Getenv(configVariable)
	if path == "" {
		return
	}
	if err := run(path, os.Stdin, os.Stdout); err != nil {
		fmt.Printf("error %v\n", err) //nolint:forbidigo // for the parent process
		os.Exit(1)
	}
	os.Exit(0)
}

func run(path string, in io.Reader, out io.Writer) error {
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		return err
	}
	opts.NoSigs = true
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(5 * time.Minute) {
		return errors.New("the server did not become ready in time")
	}
	_, err = fmt.Fprintf(out, "ok %d %d\n", port(s.Addr()), routePort(s))
	for lines := bufio.NewScanner(in); err == nil && lines.Scan(); {
		switch lines.Text() {
		case commandReload:
			if failed := s.Reload(); failed != nil {
				_, err = fmt.Fprintf(out, "error %v\n", failed)
			} else {
				_, err = fmt.Fprintln(out, "ok")
			}
		case commandRoutes:
			_, err = fmt.Fprintf(out, "ok %d\n", s.NumRoutes())
		}
	}
	return err
}

func port(addr net.Addr) int {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}

func routePort(s *server.Server) int {
	if addr := s.ClusterAddr(); addr != nil {
		return addr.Port
	}
	return -1
}
