// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/internal/jsontext"
	"github.com/refold-io/refold/sharding"
)

type topCommand struct {
	clusterFlags

	Ask      string        `help:"The node to query for the members. Defaults to any node." placeholder:"NODE"`
	Interval time.Duration `help:"Interval of the queries." default:"2s"`
	Once     bool          `help:"Print once, and exit."`
	JSON     bool          `name:"json" help:"Print one JSON object per query. Durations are in nanoseconds."`
}

func (*topCommand) Help() string {
	return `Prints the load of all nodes, again and again until Ctrl-C. Shards come from package sharding. The other figures need an
agent in the program (console.NewAgent), commands and latencies also its Meter; they are those of the last 10 to 20
seconds. The lag is the longest one of a projection on the node. With --once, the exit status is 1 if a member is
unreachable or does not respond.`
}

func (c *topCommand) Validate() error {
	if c.Interval < 100*time.Millisecond {
		return fmt.Errorf("--interval is %v, must be at least 100ms", c.Interval)
	}
	return c.clusterFlags.Validate()
}

func (c *topCommand) Run(ctx context.Context, env *operator.Env) error {
	return c.with(func(n *nodes) error {
		if c.Once {
			return c.look(ctx, env.Stdout, n)
		}
		return c.repeat(ctx, env.Stdout, n)
	})
}

// repeat prints until ctx ends. On a terminal, each table replaces the previous one.
func (c *topCommand) repeat(ctx context.Context, w io.Writer, n *nodes) error {
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	for {
		var now bytes.Buffer
		err := c.look(ctx, &now, n)
		switch {
		case ctx.Err() != nil:
			return nil // an interrupt is the normal end
		case err == nil, errors.Is(err, operator.ErrProblems):
		case c.JSON:
			if failed := json.NewEncoder(&now).Encode(map[string]string{"error": err.Error()}); failed != nil {
				return failed
			}
		default:
			fmt.Fprintf(&now, "%v\n", err)
		}
		if _, err = io.WriteString(w, c.frame(w, now.String())); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// frame returns the text that shows a table: on a terminal, a full screen.
func (c *topCommand) frame(w io.Writer, text string) string {
	f, ok := w.(*os.File)
	if c.JSON || !ok || !term.IsTerminal(int(f.Fd())) {
		return text
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return text
	}
	return screen(text, width, height)
}

// screen returns the text that replaces the contents of a terminal. Lines that do not fit are cut.
func screen(text string, width, height int) string {
	const home, eraseLine, eraseRest = "\x1b[H", "\x1b[K", "\x1b[J"
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	var b strings.Builder
	b.WriteString(home)
	for _, line := range lines[:min(len(lines), max(height-1, 1))] {
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:width])
		}
		b.WriteString(line + eraseLine + "\r\n")
	}
	b.WriteString(eraseRest)
	return b.String()
}

// load is the load of a cluster.
type load struct {
	Time      time.Time  `json:"time"`
	Cluster   string     `json:"cluster"`
	Leader    string     `json:"leader,omitempty"`
	Converged bool       `json:"converged"`
	Nodes     []nodeLoad `json:"nodes"`
}

// nodeLoad is the load of a node. Fields without a reply are nil.
type nodeLoad struct {
	Node        string         `json:"node"`
	Status      string         `json:"status"`
	Unreachable bool           `json:"unreachable,omitempty"`
	Shards      *int           `json:"shards,omitempty"`
	Entities    *int           `json:"entities,omitempty"`
	PerSecond   *float64       `json:"commands_per_second,omitempty"`
	P99         *time.Duration `json:"p99,omitempty"`
	Lag         *time.Duration `json:"lag,omitempty"`
	Memory      *uint64        `json:"memory,omitempty"`
	Notes       []string       `json:"notes,omitempty"`

	silent bool
}

// look prints the load.
func (c *topCommand) look(ctx context.Context, w io.Writer, n *nodes) error {
	s, err := n.members.State(ctx, c.Ask)
	if err != nil {
		return err
	}
	names, leaves := presentIn(s)
	answers := make(chan []sharding.AdminNode, 1)
	go func() { answers <- n.shards.Regions(ctx, names) }()
	processes := n.processes(ctx, names, leaves)
	l := loadOf(s, <-answers, processes)
	l.Time = time.Now()
	if c.JSON {
		err = json.NewEncoder(w).Encode(l)
	} else {
		err = l.print(w)
	}
	if err != nil {
		return err
	}
	for i := range l.Nodes {
		if l.Nodes[i].silent || l.Nodes[i].Unreachable {
			return operator.ErrProblems
		}
	}
	return nil
}

// loadOf joins the replies of the nodes.
func loadOf(s *cluster.Summary, regions []sharding.AdminNode, processes []process) *load {
	l := &load{Cluster: s.Cluster, Converged: s.Converged}
	l.Leader, _, _ = strings.Cut(s.Leader, "#")
	for i := range s.Members {
		m := &s.Members[i]
		v := nodeLoad{Status: m.Status, Unreachable: m.Unreachable}
		v.Node, _, _ = strings.Cut(m.Node, "#")
		if m.Status != cluster.Down.String() && m.Status != cluster.Joining.String() {
			for j := range regions {
				if regions[j].Name == v.Node {
					v.addRegions(&regions[j])
				}
			}
			for j := range processes {
				if processes[j].name == v.Node {
					v.addProcess(&processes[j])
				}
			}
		}
		if m.Unreachable {
			v.Notes = append(v.Notes, "unreachable")
		}
		l.Nodes = append(l.Nodes, v)
	}
	return l
}

func (v *nodeLoad) addRegions(n *sharding.AdminNode) {
	if n.Err != nil {
		return // the process replies to the same operator and names the reason, unless there is no region
	}
	shards, entities := 0, 0
	for i := range n.Regions {
		shards, entities = shards+n.Regions[i].Shards, entities+n.Regions[i].Entities
		if n.Regions[i].Drained {
			v.Notes = append(v.Notes, "drained: "+n.Regions[i].Type)
		}
	}
	v.Shards, v.Entities = &shards, &entities
}

func (v *nodeLoad) addProcess(p *process) {
	if v.silent = p.silent != nil; v.silent {
		v.Notes = append(v.Notes, p.silent.Error())
	}
	r := p.runtime
	if r == nil {
		if p.silent == nil {
			v.Notes = append(v.Notes, "no agent")
		}
		return
	}
	v.Memory = &r.Memory
	if r.Hosts {
		entities := 0
		for i := range r.Entities {
			entities += r.Entities[i].Resident
		}
		v.Entities = &entities
	}
	if r.Load != nil {
		v.PerSecond, v.P99 = &r.Load.PerSecond, &r.Load.P99
	}
	if r.JournalBreakerOpen || r.SnapshotBreakerOpen {
		v.Notes = append(v.Notes, "circuit breaker open")
	}
	for i := range p.projections {
		q := &p.projections[i]
		if q.FirstFailure() != nil {
			v.Notes = append(v.Notes, "projection fails: "+q.Name)
		}
		if len(q.Workers) > 0 && q.LagUnknownSince.IsZero() && (v.Lag == nil || q.Lag > *v.Lag) {
			v.Lag = &q.Lag
		}
	}
}

func (l *load) print(w io.Writer) error {
	agree := "all members agree"
	if !l.Converged {
		agree = "the members do not agree yet"
	}
	if _, err := fmt.Fprintf(w, "%s, %s: %d members, %s\n\n", jsontext.Printable(l.Cluster), l.Time.Format(time.TimeOnly), len(l.Nodes), agree); err != nil {
		return err
	}
	out := console.NewTable(w, false, "NODE", "STATUS", "SHARDS", "ENTITIES", "COMMANDS/S", "P99", "LAG", "MEMORY", "NOTES")
	sum := nodeLoad{}
	for i := range l.Nodes {
		v := &l.Nodes[i]
		sum.Shards, sum.Entities, sum.PerSecond, sum.Memory = plus(sum.Shards, v.Shards), plus(sum.Entities, v.Entities), plus(sum.PerSecond, v.PerSecond), plus(sum.Memory, v.Memory)
		sum.P99, sum.Lag = longest(sum.P99, v.P99), longest(sum.Lag, v.Lag)
		status := v.Status
		if v.Node == l.Leader {
			status += ", leads"
		}
		if err := out.Row(append([]string{v.Node, status}, append(v.cells(), orNone(strings.Join(v.Notes, ", ")))...)...); err != nil {
			return err
		}
	}
	if len(l.Nodes) > 1 {
		if err := out.Row(append([]string{"all", ""}, append(sum.cells(), "")...)...); err != nil {
			return err
		}
	}
	return out.Flush()
}

func (v *nodeLoad) cells() []string {
	return []string{
		cell(v.Shards, strconv.Itoa), cell(v.Entities, strconv.Itoa),
		cell(v.PerSecond, func(f float64) string { return strconv.FormatFloat(f, 'f', 0, 64) }),
		cell(v.P99, durationText), cell(v.Lag, durationText),
		cell(v.Memory, func(b uint64) string { return strconv.FormatUint(b>>20, 10) + " MiB" }),
	}
}

func cell[T any](v *T, text func(T) string) string {
	if v == nil {
		return "-"
	}
	return text(*v)
}

// plus adds values, of which nil counts as none.
func plus[T int | uint64 | float64](a, b *T) *T {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	sum := *a + *b
	return &sum
}

func longest(a, b *time.Duration) *time.Duration {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}
