// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/plugins/nats"
)

// processes are the branches of a bank. Each branch is a process.
type processes struct {
	s        *soak
	names    []string
	access   map[string]nats.Access
	caller   *caller
	log      *tail
	injected map[fault]int

	mu      sync.Mutex
	running map[string]*process
	waits   sync.WaitGroup
}

// process is a process that runs or has ended.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	dead  chan struct{}
	exit  error // the result of the process; valid when dead is closed
	// replaced is set when other processes have taken over the accounts during a pause. Until the
	// process notices the pause, its replies that store nothing may be outdated.
	replaced atomic.Bool

	mu  sync.Mutex
	url string
}

// tail is a writer that keeps the end of the written text.
type tail struct {
	mu      sync.Mutex
	buf     []byte
	decided map[string]int // the logged decisions of branch.supervise, by directive
}

const tailSize = 2 << 20

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, directive := range []string{"restart", "resume"} {
		if n := bytes.Count(p, []byte("directive="+directive)); n > 0 {
			l.decided[directive] += n
		}
	}
	if l.buf = append(l.buf, p...); len(l.buf) > 2*tailSize {
		l.buf = append(l.buf[:0], l.buf[len(l.buf)-tailSize:]...)
	}
	return len(p), nil
}

// decisions returns the number of logged decisions by directive.
func (l *tail) decisions() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return tallied(l.decided)
}

// startProcesses starts the processes. They end with the test.
func startProcesses(s *soak, server *natstest.Server, names []string) *processes {
	s.Helper()
	p := &processes{
		s: s, names: names, access: map[string]nats.Access{}, caller: newCaller(5 * time.Second), log: &tail{decided: map[string]int{}}, injected: map[fault]int{},
		running: map[string]*process{},
	}
	s.Cleanup(p.close)
	for _, name := range names {
		p.access[name] = server.Access(s.T, name)
		p.start(name)
	}
	return p
}

func (p *processes) close() {
	for _, name := range p.names {
		if r := p.process(name); r != nil {
			_ = r.cmd.Process.Kill()
			<-r.dead
		}
	}
	p.waits.Wait()
	if p.s.Failed() {
		p.s.Logf("the branches have logged:\n%s", p.log.buf)
	}
}

// start starts a process.
func (p *processes) start(name string) {
	p.s.Helper()
	self, err := os.Executable()
	if err != nil {
		p.s.Fatal(err)
	}
	access := p.access[name]
	cmd := exec.Command(self, program, "serve", "-v", "--journal", "postgres:", "--join", strings.Join(p.names, ","), "--name", name, "--state", p.s.state,
		"--standbys", strconv.Itoa(p.s.standbys), "--nats", access.URLs[0], "--nats-token-file", access.TokenFile, "--addr", "127.0.0.1:0", "--stable-after", p.s.stable.String())
	cmd.Env = append(os.Environ(), pgtest.Env+"="+p.s.address)
	cmd.Stderr = p.log
	r := &process{name: name, cmd: cmd, dead: make(chan struct{})}
	r.stdin, err = cmd.StdinPipe()
	out, failed := cmd.StdoutPipe()
	if err = errors.Join(err, failed, cmd.Start()); err != nil {
		p.s.Fatal(err)
	}
	p.mu.Lock()
	p.running[name] = r
	p.mu.Unlock()
	p.waits.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if url, found := strings.CutPrefix(lines.Text(), name+" is open at "); found {
				r.mu.Lock()
				r.url = url
				r.mu.Unlock()
			}
		}
		r.exit = cmd.Wait()
		_ = r.stdin.Close()
		_, _ = fmt.Fprintf(p.log, "%s %s has ended: %v\n", time.Now().Format(time.StampMilli), name, r.exit)
		p.mu.Lock()
		delete(p.running, name)
		p.mu.Unlock()
		close(r.dead)
	})
}

// process returns the running process with a name, or nil.
func (p *processes) process(name string) *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running[name]
}

// anyProcess returns a process, or nil if none runs. The process may not serve requests yet.
func (p *processes) anyProcess(random *rand.Rand) *process {
	p.mu.Lock()
	var all []*process
	for _, name := range p.names {
		if r := p.running[name]; r != nil {
			all = append(all, r)
		}
	}
	p.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	return all[random.IntN(len(all))]
}

// at returns the address at which the process serves requests, or "" if it does not serve.
func (r *process) at() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.url
}

// until waits until a condition holds. It restarts ended processes, except those in leave.
func (p *processes) until(subject string, leave []string, holds func() bool) {
	p.s.Helper()
	for patience := time.Now().Add(3 * time.Minute); !holds(); {
		for _, name := range p.names {
			if p.process(name) == nil && !slices.Contains(leave, name) {
				_, _ = fmt.Fprintf(p.log, "%s %s is started again\n", time.Now().Format(time.StampMilli), name)
				p.start(name)
			}
		}
		if time.Now().After(patience) || !sleep(p.s.Context(), 50*time.Millisecond) {
			p.s.Fatalf("timed out; waiting until %s", subject)
		}
	}
}

// whole waits until all processes run, and the view of each has exactly these members.
func (p *processes) whole() {
	p.s.Helper()
	p.until("all are members", nil, func() bool { return p.agree(p.names...) })
}

// agree reports whether the view of each named process has exactly the named members.
func (p *processes) agree(names ...string) bool {
	var first branchBody
	for i, name := range names {
		r := p.process(name)
		if r == nil || r.at() == "" {
			return false
		}
		known, err := p.caller.branchAt(p.s.Context(), r.at())
		if err != nil || len(known.Members) != len(names) {
			return false
		}
		if i == 0 {
			first = known
		}
		if !slices.Equal(known.Members, first.Members) || known.Coordinator == "" ||
			slices.ContainsFunc(known.Members, func(m memberBody) bool { return m.Status != "up" || !m.Reachable }) {
			return false
		}
	}
	return true
}

// allHost waits until each process hosts shards again. The accounts of a moved shard start with
// their first command.
func (p *processes) allHost() {
	p.s.Helper()
	p.until("each has shards", nil, func() bool {
		var all []int
		for _, name := range p.names {
			r := p.process(name)
			if r == nil {
				return false
			}
			known, err := p.caller.branchAt(p.s.Context(), r.at())
			if err != nil || known.Shards == 0 {
				return false
			}
			all = append(all, known.Shards)
		}
		p.s.Logf("shards of each branch: %v", all)
		return true
	})
}

// drain sends SIGTERM to all processes, one after the other. If the machine is too busy for
// --stable-after, a node may be downed before or while it leaves. Only a soak run reports such a
// downing as an error, because no other work runs on the machine during a soak.
func (p *processes) drain() {
	p.s.Helper()
	complain := p.s.Logf
	if effort.Soak() {
		complain = p.s.Errorf
	}
	for _, name := range p.names {
		r := p.process(name)
		if r == nil {
			complain("%s no longer runs", name)
			continue
		}
		p.signal(r, syscall.SIGTERM)
		<-r.dead
		if r.exit != nil {
			complain("%s: exit after SIGTERM: %v", name, r.exit)
		}
	}
}

func (p *processes) signal(r *process, s syscall.Signal) {
	p.s.Helper()
	if err := r.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.s.Errorf("signal %s: %v", r.name, err)
	}
}
