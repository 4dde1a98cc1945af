// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
)

// adminService is the name under which operators ask for regions: see cluster.Node.HandleAdmin.
const adminService = "sharding"

// adminCommand is what an operator asks of a node.
type adminCommand string

// The commands. All of them can be repeated.
const (
	// adminCmdRegions asks for the regions and proxies of the node, or the one of a type.
	adminCmdRegions adminCommand = "regions"
	// adminCmdShards asks for the shards that the node hosts, and how many entities they have; adminCmdEntities for the IDs of those that run
	// in one.
	adminCmdShards   adminCommand = "shards"
	adminCmdEntities adminCommand = "entities"
	// adminCmdFind asks where an entity is.
	adminCmdFind adminCommand = "find"
	// adminCmdRebalance asks the strategy which shards should move. It is for the node that has the coordinator.
	adminCmdRebalance adminCommand = "rebalance"
	// adminCmdDrain gives all shards of the node away: see Region.Drain. It does not wait for that.
	adminCmdDrain adminCommand = "drain"
	// adminCmdUndrain takes that back: see Region.Undrain.
	adminCmdUndrain adminCommand = "undrain"
)

// adminRequest is a request of an operator, in JSON.
type adminRequest struct {
	// Service is adminService.
	Service string       `json:"service"`
	Command adminCommand `json:"command"`
	// Type is the name of the entity type. All commands but adminCmdRegions need it.
	Type string `json:"type,omitempty"`
	// Shard is what adminCmdEntities is about, ID what adminCmdFind is.
	Shard Shard  `json:"shard,omitempty"`
	ID    string `json:"id,omitempty"`
	// Behind is the shard from which on the answer of adminCmdShards begins; After is the type, or the ID, behind which that of adminCmdRegions or
	// adminCmdEntities does: there may be too many for one.
	Behind Shard  `json:"behind,omitempty"`
	After  string `json:"after,omitempty"`
}

// adminReply is the answer, in JSON. Kind has gone wrong is in Error; then the rest is empty but for Reason.
type adminReply struct {
	Error string `json:"error,omitempty"`
	// NoService says that the node has no region at all.
	NoService bool `json:"no_service,omitempty"`
	// Reason is "no region", "no coordinator", or empty for other errors.
	Reason string `json:"reason,omitempty"`
	// Node is who answers, as identity.Node.String writes it.
	Node     string        `json:"node,omitempty"`
	Regions  []AdminRegion `json:"regions,omitempty"`
	Shards   []AdminShard  `json:"shards,omitempty"`
	Entities []string      `json:"entities,omitempty"`
	Found    *AdminFound   `json:"found,omitempty"`
	// Moving is how many shards are moved by adminCmdRebalance.
	Moving int `json:"moving,omitempty"`
	// More says that there are more, behind the last one.
	More bool `json:"more,omitempty"`
}

// AdminRegion is what a region, or a proxy, runs and knows. Nodes are written as identity.Node.String does.
type AdminRegion struct {
	Type string `json:"type"`
	// Role is what the nodes have that host the type, empty for all.
	Role string `json:"role,omitempty"`
	// Total is how many shards the type is divided into.
	Total int `json:"total"`
	// Proxy says that the node hosts none; Drained that it gives all away, and takes none any more.
	Proxy   bool `json:"proxy,omitempty"`
	Drained bool `json:"drained,omitempty"`
	// Coordinator is the node with the coordinator that knows the region, empty if none does.
	Coordinator string `json:"coordinator,omitempty"`
	// Mismatch is why that one does not let the region register: its settings are others.
	Mismatch string `json:"mismatch,omitempty"`
	// Shards is how many the node hosts, Entities how many those have: which run, and which will.
	Shards   int `json:"shards"`
	Entities int `json:"entities"`
	// Waiting is how many commands wait on the node; Dropped how many have reached nobody since it was started.
	Waiting int    `json:"waiting,omitempty"`
	Dropped uint64 `json:"dropped,omitempty"`
	// CoordinatorState is what the coordinator knows, nil but on the node that has it.
	CoordinatorState *AdminCoordinator `json:"coordinator_state,omitempty"`
}

// AdminCoordinator is what the coordinator of a type knows.
type AdminCoordinator struct {
	Term  uint64 `json:"term"`
	Phase string `json:"phase"`
	// Regions and Proxies are registered, but may be gone.
	Regions int `json:"regions"`
	Proxies int `json:"proxies"`
	// Placed is how many shards have a home, Moving how many of them are being moved.
	Placed int `json:"placed"`
	Moving int `json:"moving,omitempty"`
	// Refused is how many regions and proxies can't register, since their settings are others.
	Refused int `json:"refused,omitempty"`
}

// AdminShard is a shard that a node hosts.
type AdminShard struct {
	Shard Shard `json:"shard"`
	// Entities is how many it has: which run, and which will.
	Entities int `json:"entities"`
}

// AdminFound is where an entity is.
type AdminFound struct {
	Shard Shard `json:"shard"`
	// Home is the node that has the shard, as far as the node that answers knows; empty if it does not.
	Home string `json:"home,omitempty"`
	// Coordinator is the node that should know.
	Coordinator string `json:"coordinator,omitempty"`
	// Running says that the entity runs on the node that answers.
	Running bool `json:"running,omitempty"`
}

const (
	adminPage     = 1000      // shards, or IDs, or
	adminBytes    = 192 << 10 // of those
	maxAdminError = 4 << 10
)

// ErrNoRegion says that a node has no region, and no proxy, of the type that an operator has asked for.
var ErrNoRegion = errors.New("sharding: the node has no region of the type")

// adminReasons returns the errors that are told apart, by their names.
func adminReasons() map[string]error {
	return map[string]error{"no region": ErrNoRegion, "no coordinator": ErrNoCoordinator}
}

func adminReason(err error) string {
	for text, known := range adminReasons() { // at most one of them matches
		if errors.Is(err, known) {
			return text
		}
	}
	return ""
}

// serve lets other nodes and operators ask for the regions of a node.
func (rt *router) serve() {
	rt.node.Transport().HandleRequest(kindQuery, rt.receiveQuery)
	rt.node.HandleAdmin(adminService, rt.admin)
}

// admin answers an operator.
func (rt *router) admin(ctx context.Context, operator string, request []byte) []byte {
	var r adminRequest
	var answer adminReply
	err := json.Unmarshal(request, &r)
	if err == nil {
		answer, err = rt.administer(ctx, operator, &r)
		answer.Node = rt.node.Self().String()
	}
	if err != nil {
		text := err.Error()
		answer = adminReply{Error: text[:min(len(text), maxAdminError)], Reason: adminReason(err)}
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return []byte(`{"error":"the answer can't be encoded"}`)
	}
	return out
}

func (rt *router) administer(ctx context.Context, operator string, r *adminRequest) (adminReply, error) {
	if r.Command == adminCmdRegions && r.Type == "" {
		return rt.adminRegions(ctx, r.After)
	}
	s := rt.find(r.Type)
	if s == nil {
		return adminReply{}, fmt.Errorf("%w: %.100q", ErrNoRegion, r.Type)
	}
	return s.administer(ctx, operator, r)
}

// types returns the types with a region or a proxy on the node, sorted.
func (rt *router) types() []string {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	types := make([]string, 0, len(rt.shells))
	for name := range rt.shells {
		types = append(types, name)
	}
	slices.Sort(types)
	return types
}

// adminRegions returns the regions of all types behind one.
func (rt *router) adminRegions(ctx context.Context, after string) (answer adminReply, err error) {
	for _, name := range rt.types() {
		s := rt.find(name)
		switch {
		case name <= after || s == nil:
			continue
		case len(answer.Regions) == adminPage/10:
			answer.More = true
			return answer, nil
		}
		region, err := s.adminRegion(ctx)
		if errors.Is(err, ErrStopped) {
			continue
		}
		if err != nil {
			return answer, err
		}
		answer.Regions = append(answer.Regions, region)
	}
	return answer, nil
}

// administer answers an operator who asks for a type.
func (s *shell) administer(ctx context.Context, operator string, r *adminRequest) (answer adminReply, err error) {
	switch r.Command {
	case adminCmdRegions:
		var region AdminRegion
		region, err = s.adminRegion(ctx)
		answer.Regions = []AdminRegion{region}
	case adminCmdShards:
		err = s.call(ctx, func() { answer.Shards, answer.More = s.adminShards(r.Behind) })
	case adminCmdEntities:
		err = s.call(ctx, func() { answer.Entities, answer.More = s.adminEntities(r.Shard, r.After) })
	case adminCmdFind:
		answer.Found, err = s.adminFind(ctx, r.ID)
	case adminCmdRebalance:
		s.logOperatorCommand(ctx, operator, r)
		answer.Moving, err = s.adminRebalance(ctx)
	case adminCmdDrain:
		s.logOperatorCommand(ctx, operator, r)
		if s.entities != nil {
			s.beginDrain() //nolint:contextcheck // nobody waits for it here
		}
	case adminCmdUndrain:
		s.logOperatorCommand(ctx, operator, r)
		err = s.undrain(ctx)
	default:
		err = fmt.Errorf("%w: command %.100q", ErrInvalid, string(r.Command))
	}
	if err != nil {
		return adminReply{}, err
	}
	return answer, nil
}

func (s *shell) logOperatorCommand(ctx context.Context, operator string, r *adminRequest) {
	s.log.InfoContext(ctx, "an operator commands", slog.String("operator", operator), slog.String("command", string(r.Command)))
}

// adminRegion returns what the region runs and knows.
func (s *shell) adminRegion(ctx context.Context) (a AdminRegion, err error) {
	a = AdminRegion{Type: s.name, Role: s.opts.Role, Total: s.opts.Shards, Proxy: s.entities == nil, Dropped: s.dropped.Load()}
	if why := s.mismatchErr(); why != nil {
		a.Mismatch = why.Error()
	}
	err = s.call(ctx, func() {
		m := s.machine
		a.Drained, a.Waiting = m.Leaving(), m.Waiting()
		if boss, ok := m.Coordinator(); ok {
			a.Coordinator = boss.String()
		}
		for _, c := range s.counts() {
			a.Shards++
			a.Entities += c.Entities
		}
		c := m.LocalCoordinator()
		if c == nil {
			return
		}
		state, _ := c.State()
		a.CoordinatorState = &AdminCoordinator{
			Term: c.Term(), Phase: c.Phase().String(), Regions: len(state.Regions()), Proxies: len(state.Proxies()), Placed: state.Shards(), Moving: len(c.Moving()), Refused: c.Refused(),
		}
	})
	return a, err
}

// adminShards returns shards of this node, from one on. It belongs to the loop.
func (s *shell) adminShards(behind Shard) (page []AdminShard, more bool) {
	for _, n := range s.machine.Hosted() {
		switch {
		case n < behind:
		case len(page) == adminPage:
			return page, true
		default:
			page = append(page, AdminShard{n, s.machine.Tracked(n)})
		}
	}
	return page, false
}

// adminEntities returns the entities of a shard that run on this node, behind one. It belongs to the loop.
func (s *shell) adminEntities(n Shard, after string) (page []string, more bool) {
	room := adminBytes
	for _, id := range s.machine.Running(n) {
		if id <= after && after != "" {
			continue
		}
		if room -= 6*len(id) + 3; len(page) == adminPage || room < 0 { // as JSON a byte takes six at most
			return page, true
		}
		page = append(page, id)
	}
	return page, false
}

// adminFind returns where an entity is.
func (s *shell) adminFind(ctx context.Context, id string) (*AdminFound, error) {
	n, err := s.shardOf(id)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	found := &AdminFound{Shard: n}
	err = s.call(ctx, func() {
		m := s.machine
		home, known := m.Home(n)
		if c := m.LocalCoordinator(); c != nil && !known {
			state, _ := c.State()
			home, known = state.Home(n)
		}
		if known {
			found.Home = home.String()
		}
		if boss, ok := m.Coordinator(); ok {
			found.Coordinator = boss.String()
		}
		found.Running = slices.Contains(m.Running(n), id)
	})
	return found, err
}

// rebalancePoll is how often it is looked whether the strategy has answered.
const rebalancePoll = 10 * time.Millisecond

// adminRebalance asks the strategy which shards should move, and waits for its answer.
func (s *shell) adminRebalance(ctx context.Context) (moving int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.StrategyTimeout+queryTimeout, errNoReply)
	defer cancel()
	ticker := time.NewTicker(rebalancePoll)
	defer ticker.Stop()
	var asked *coordinator.Machine
	for before := 0; ; {
		here, open := false, false
		err := s.call(ctx, func() { //nolint:contextcheck // the loop has a context of its own
			c := s.machine.LocalCoordinator()
			if c != nil && asked == nil {
				asked, before = c, c.HandOffs()
				s.step(shardcore.Rebalance{})
			}
			if here = c != nil && c == asked; here {
				open, moving = c.Rebalancing(), c.HandOffs()-before
			}
		})
		switch {
		case err != nil:
			return 0, err
		case !here:
			return 0, fmt.Errorf("%w on %v", ErrNoCoordinator, s.node.Self())
		case !open:
			return moving, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}
