// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/identity"
)

// Fleet is a set of child processes. Its methods are safe for concurrent use, except Next.
type Fleet struct {
	command []string
	stderr  io.Writer

	reports chan Report
	quit    chan struct{}
	readers sync.WaitGroup

	mu   sync.Mutex
	runs map[string]*process
}

// process is a running child.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	dead  chan struct{}
}

// newFleet returns an empty fleet. The command starts a child: a program with the arguments that
// make the program call Serve. The standard error of the children goes to stderr.
func newFleet(command []string, stderr io.Writer) *Fleet {
	return &Fleet{command: command, stderr: console.Synchronized(stderr), reports: make(chan Report, 1024), quit: make(chan struct{}), runs: map[string]*process{}}
}

// Start starts a node and returns its process ID. No other running node may have its name.
func (f *Fleet) Start(n Node) (pid int, err error) {
	line, err := json.Marshal(n)
	if err != nil {
		return 0, fmt.Errorf("start node %s: %w", n.Name, err)
	}
	cmd := exec.Command(f.command[0], f.command[1:]...)
	cmd.Stderr = f.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, fmt.Errorf("start node %s: %w", n.Name, err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("start node %s: %w", n.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start node %s: %w", n.Name, err)
	}
	p := &process{cmd: cmd, stdin: stdin, dead: make(chan struct{})}
	f.mu.Lock()
	f.runs[n.Name] = p
	f.mu.Unlock()
	f.readers.Go(func() { f.read(n.Name, p, stdout) })
	if _, err := stdin.Write(append(line, '\n')); err != nil {
		return 0, fmt.Errorf("start node %s: %w", n.Name, err)
	}
	return cmd.Process.Pid, nil
}

// read forwards the reports of a child until its process has ended.
func (f *Fleet) read(name string, p *process, stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, maxLine)
	last := Report{Node: identity.Node{Name: name}}
	for lines.Scan() {
		var r Report
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			last.Node = r.Node
			f.pass(r)
		}
	}
	last.Exit = "exit status 0"
	if err := p.cmd.Wait(); err != nil {
		last.Exit = err.Error()
	}
	f.mu.Lock()
	if f.runs[name] == p {
		delete(f.runs, name)
	}
	f.mu.Unlock()
	close(p.dead)
	last.At = time.Now()
	f.pass(last)
}

func (f *Fleet) pass(r Report) {
	select {
	case f.reports <- r:
	case <-f.quit:
	}
}

// Next returns the next report of any node. If ctx ends first, it returns the cause of ctx.
func (f *Fleet) Next(ctx context.Context) (Report, error) {
	select {
	case r := <-f.reports:
		return r, nil
	case <-ctx.Done():
		return Report{}, context.Cause(ctx)
	}
}

// Running returns the names of the running nodes, sorted.
func (f *Fleet) Running() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.runs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f *Fleet) find(name string) (*process, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.runs[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("node %s is not running", name)
}

// Send sends a value to the Extension of a node.
func (f *Fleet) Send(name string, v any) error {
	p, err := f.find(name)
	if err != nil {
		return err
	}
	line, err := json.Marshal(v)
	if err == nil {
		_, err = p.stdin.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("send to node %s: %w", name, err)
	}
	return nil
}

// Signal sends a signal to the process of a node.
func (f *Fleet) Signal(name string, s syscall.Signal) error {
	p, err := f.find(name)
	if err != nil {
		return err
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal node %s: %w", name, err)
	}
	return nil
}

// Kill kills the process of a node with SIGKILL, and waits until it has ended.
func (f *Fleet) Kill(name string) error {
	p, err := f.find(name)
	if err != nil {
		return err
	}
	if err := p.cmd.Process.Signal(os.Kill); err != nil {
		return fmt.Errorf("kill node %s: %w", name, err)
	}
	<-p.dead
	return nil
}

// Close ends all processes. It kills those that do not end within 10 s.
func (f *Fleet) Close() {
	close(f.quit)
	f.mu.Lock()
	runs := make([]*process, 0, len(f.runs))
	for _, p := range f.runs {
		runs = append(runs, p)
	}
	f.mu.Unlock()
	for _, p := range runs {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.stdin.Close()
	}
	patience := time.NewTimer(10 * time.Second)
	defer patience.Stop()
	for _, p := range runs {
		select {
		case <-p.dead:
		case <-patience.C:
			for _, p := range runs {
				_ = p.cmd.Process.Kill()
			}
			<-p.dead
		}
	}
	f.readers.Wait()
}
